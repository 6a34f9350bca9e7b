"""scripts/hide_cuda: the command that it runs finds no CUDA, whatever the machine has, while other
commands still find CUDA. If a part of CUDA cannot be hidden, hide_cuda fails and does not run the
command."""
# label: unit
import os
import subprocess
import unittest

import harness

HIDE = harness.source("scripts/hide_cuda")


def why_not():
    done = subprocess.run(["unshare", "--mount", *(["--user", "--map-root-user"] if os.geteuid()
                                                   else []), "true"],
                          stderr=subprocess.PIPE, text=True, check=False)
    return "no mount namespace can be made here (%s); run this as root outside of a chroot" % \
        done.stderr.strip() if done.returncode else None


class HideCuda(harness.Test):
    def toolkit(self):
        """Returns the environment of a machine with a toolkit, and the toolkit's nvcc."""
        nvcc = self.path("toolkit/bin/nvcc")
        for path, text in ((nvcc, "#!/bin/sh\n"), (self.header("toolkit/include"), "")):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            harness.write_file(path, text)
            os.chmod(path, 0o755)
        folder = os.path.dirname(nvcc)
        return dict(os.environ, CUDA_HOME=os.path.dirname(folder),
                    PATH=folder + ":" + os.environ["PATH"]), nvcc

    def header(self, folder):
        return self.path(folder, "cuda_runtime_api.h")

    def run_hidden(self, env, command):
        return harness.run([HIDE, "bash", "-c", command], env=env)

    @unittest.skipIf(why_not(), why_not())
    def test_hidden_command_finds_no_cuda(self):
        env, nvcc = self.toolkit()
        done = self.run_hidden(env, "type -Pa nvcc; echo \"<$CUDA_HOME>\"; id -u; "
                                    "cat %s; exit 7" % self.header("toolkit/include"))
        self.assertEqual(done.stdout, "<>\n%d\ncat: %s: No such file or directory\n" %
                         (os.geteuid(), self.header("toolkit/include")))
        self.assertEqual(done.returncode, 7)
        self.assertTrue(os.access(nvcc, os.X_OK))

    @unittest.skipIf(why_not(), why_not())
    def test_visible_part_is_an_error(self):
        env, _ = self.toolkit()
        os.mkdir(self.path("other"))
        with open(self.header("other"), "w", encoding="utf-8"):
            pass
        done = self.run_hidden({**env, "C_INCLUDE_PATH": self.path("other")}, "echo it ran")
        self.assertEqual(done.returncode, 125, done.stdout)
        self.assertIn("CUDA is still found, outside of a toolkit's folder: " +
                      self.header("other"), done.stdout)
        self.assertNotIn("it ran", done.stdout)

    def test_missing_command_refused(self):
        done = subprocess.run([HIDE], stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no command", done.stderr)


harness.main(__name__)
