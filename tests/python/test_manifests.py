"""The files of examples/ and packaging/docker that start Weir in other systems: the test parses
them like those systems, and the programs accept their commands."""
# label: unit
import os
import re
import shlex
import unittest

import harness

try:
    import yaml
except ImportError as e:
    yaml, WHY_NOT = None, "needs python3-yaml (%s); scripts/setup installs it" % e

EXAMPLES = harness.source("examples")
DOCKER = harness.source("packaging/docker")


def text(*path):
    return harness.read_text(os.path.join(*path))


@unittest.skipUnless(yaml, "" if yaml else WHY_NOT)
class Manifests(harness.Test):
    def check_accepted(self, program, command, **variables):
        """Checks that the program has each flag of the command, and accepts its value."""
        for name, value in variables.items():
            command = command.replace(name, value)
        argv = [harness.program(program), *shlex.split(command), "--version"]
        self.assertNotIn("$", " ".join(argv))
        done = harness.run(argv)
        self.assertEqual(done.returncode, 0, "%s: %s" % (argv, done.stdout))

    def documents(self, name):
        return {d["kind"]: d for d in yaml.safe_load_all(text(EXAMPLES, "kubernetes", name))}

    def test_kubernetes_job_is_consistent(self):
        """Names that refer to each other are the same. Exit statuses and times are those of the
        programs."""
        found = self.documents("job.yaml")
        service, ps, job = (found[k] for k in ("Service", "StatefulSet", "Job"))
        name = service["metadata"]["name"]
        self.assertEqual(ps["spec"]["serviceName"], name)
        self.assertTrue(service["spec"]["publishNotReadyAddresses"])
        labels = ps["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(service["spec"]["selector"], labels)
        self.assertEqual(ps["spec"]["selector"]["matchLabels"], labels)
        hosts = ",".join("%s-%d.%s:2222" % (ps["metadata"]["name"], i, name)
                         for i in range(ps["spec"]["replicas"]))
        for role, d in (("ps", ps), ("worker", job)):
            pod = d["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            shell, c, line = container["command"]
            self.assertEqual((shell, c), ("sh", "-c"))
            self.assertIn("--ps_hosts=%s " % hosts, line)
            workers = re.search("--worker_hosts=(\\S+)", line).group(1).split(",")
            self.assertEqual(len(workers), job["spec"]["completions"])
            flags = re.search(r"weir-%s (--[^&]*)" % role, line.replace("\\\n", "")).group(1)
            self.check_accepted(role, flags,
                                **{'"${HOSTNAME##*-}"': "1", '"$JOB_COMPLETION_INDEX"': "2"})
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
            self.assertGreater(pod["terminationGracePeriodSeconds"], 30)
        self.assertEqual(job["spec"]["completions"], job["spec"]["parallelism"])
        fails, retries, _ = job["spec"]["podFailurePolicy"]["rules"]
        self.assertEqual((fails["action"], fails["onExitCodes"]["values"]), ("FailJob", [1, 2]))
        self.assertEqual(retries["action"], "Ignore")
        self.assertLessEqual({137, 138}, set(retries["onExitCodes"]["values"]))
        self.assertEqual(job["spec"]["template"]["spec"]["restartPolicy"], "Never")

    def test_tfjob_commands_accepted(self):
        (tfjob,) = self.documents("tfjob.yaml").values()
        for replica in tfjob["spec"]["tfReplicaSpecs"].values():
            (container,) = replica["template"]["spec"]["containers"]
            self.check_accepted("worker", shlex.join(container["command"][1:]))

    def test_compose_commands_accepted(self):
        services = yaml.safe_load(text(EXAMPLES, "compose/compose.yaml"))["services"]
        self.assertEqual(sorted(services), ["ps0", "worker0", "worker1"])
        for name, service in services.items():
            role, index = re.fullmatch("(ps|worker)([0-9])", name).groups()
            line = re.sub(r"\$\{WEIR_FLAGS:-(.*)\}", r"\1", service["command"])
            self.assertIn("--job_name=%s --task_index=%s " % (role, index), line)
            self.assertIn("--ps_hosts=ps0:2222 --worker_hosts=worker0:2222,worker1:2222 ", line)
            self.check_accepted(role, line)

    def test_systemd_units_accept_job_settings(self):
        """The settings of job.env fit both units."""
        env = dict(re.findall("^(WEIR_\\w+)=(.*)$", text(EXAMPLES, "systemd/job.env"), re.M))
        for role in ("ps", "worker"):
            unit = text(EXAMPLES, "systemd/weir-%s@.service" % role)
            program, line = re.search("^ExecStart=(\\S+) (.*)$", unit, re.M).groups()
            self.assertEqual(program, "/usr/bin/weir-" + role)
            self.check_accepted(role, line, **{"%i": "1", **{"$" + k: v for k, v in env.items()}})
            for line in ("Restart=on-failure", "RestartForceExitStatus=138",
                         "RestartPreventExitStatus=1 2", "SuccessExitStatus=143"):
                self.assertIn("\n%s\n" % line, unit)

    def test_dockerfiles_agree_with_setup(self):
        """The packages for the build are those of scripts/setup, and the user is that of compose
        and Kubernetes."""
        build = re.search(r"^build=\((.*?)^\)", text(harness.SOURCE, "scripts/setup"),
                          re.M | re.S).group(1)
        wanted = set(re.sub("#.*", "", build).split()) - {"openssl", "python3", "iproute2"}
        for name in ("Dockerfile", "Dockerfile.cuda"):
            docker = text(DOCKER, name)
            self.assertLessEqual(wanted, set(docker.split()), name)
            self.assert_has(docker, "\nUSER 64000:64000\n", '\nENTRYPOINT ["weir-task"]\n')
        for variable in ("NVIDIA_VISIBLE_DEVICES=all",
                         "NVIDIA_DRIVER_CAPABILITIES=compute,utility"):
            self.assertRegex(docker, r"\nENV (\S+ )*%s\b" % variable)


harness.main(__name__)
