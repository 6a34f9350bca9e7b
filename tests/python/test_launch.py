"""scripts/launch with stand-ins for ssh and weir-task. The tests check the flags of each start, the
restarts, the order in which tasks end, and that no process is left. test_launch_ssh.py uses sshd
and Weir's own programs."""
# label: unit
import os
import signal
import subprocess
import sys
import time

import harness

# A stand-in for ssh, which runs every command on this machine. The host `dead` refuses connections,
# `away` refuses them while a file of that name exists, `greets` first prints a text without an end
# of line, and `bare` has no program but bash. A task on `away` or `greets` can kill its ssh, and
# continues without it, like a task whose host is cut off.
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do [[ $1 == -- ]] && shift && break; [[ $1 == -o ]] && shift; shift; done
[ "$1" != dead ] || { echo "ssh: connect to host dead port 22: No route to host" >&2; exit 255; }
if [ "$1" = away ] && [ -e "$SCRIPTS/away" ]; then
    echo "ssh: connect to host away port 22: Connection timed out" >&2; exit 255
fi
[ "$1" != greets ] || printf 'welcome'
[ "$1" != bare ] || export PATH=$SCRIPTS/bare
host=$1; shift
if [ $host = away ] || [ $host = greets ]; then
    export SSH_GROUP=$$
    setsid bash -c "$*" <&0 | cat
    exit ${PIPESTATUS[0]}
fi
exec /bin/bash -c "$*"
"""

# A task: records its number and flags, and runs its script $SCRIPTS/ROLE-INDEX.
TASK = """#!/bin/bash
for flag; do case $flag in
    --job_name=*) role=${flag#*=} ;; --task_index=*) index=${flag#*=} ;; esac; done
cd "$SCRIPTS"
echo $$ >>pids
echo "$CUDA_VISIBLE_DEVICES $*"
stay() {
    trap 'sleep 0.1; echo "$role:$index" >>ends; exit '$1 TERM
    echo >>staying
    while :; do sleep 0.05; done
}
if [ -f $role-$index ]; then . ./$role-$index; else stay 143; fi
"""


class Launch(harness.Test):
    def scene(self, hosts, **scripts):
        """Makes the folder, with the file of hosts and the scripts of the tasks: ps_0="exit 0"."""
        folder = self.dir()
        for name, text in (("ssh", SSH), ("task", TASK), ("hosts", hosts),
                           *((k.replace("_", "-"), v) for k, v in scripts.items())):
            harness.write_file(os.path.join(folder, name), text)
        for name in ("ssh", "task"):
            os.chmod(os.path.join(folder, name), 0o755)
        return folder

    def argv(self):
        return [sys.executable, harness.source("scripts/launch"), self.path("hosts"),
                "--ssh", self.path("ssh"), "--program", self.path("task"),
                "--logs", self.path("logs")]

    def launch(self, *flags, before=()):
        """Starts launch; no task is left when the test has ended."""
        self.at_end(self.check_none_left)
        return self.start("launch", [*before, *self.argv(), "--grace=5", *flags],
                          env={**os.environ, "SCRIPTS": self.dir()})

    def read(self, name):
        return harness.read_text(self.path(name)).splitlines()

    def check_none_left(self):
        """Waits until no task, and none of its shells, is left."""
        path = self.path("pids")
        # The task may have ended before it wrote the file.
        pids = self.read("pids") if os.path.exists(path) else []

        def none_left():
            found = subprocess.run(["pgrep", "-f", self.dir() + "/task"], stdout=subprocess.PIPE)
            return found.returncode == 1 and not any(
                os.path.exists("/proc/" + pid) for pid in pids)
        harness.until(none_left, "no task is left")

    def test_failed_tasks_restarted(self):
        """After 138 and SIGKILL; the test also checks flags, GPUs, addresses, files and lines."""
        first = "[ -f again-$index ] || { touch again-$index; %s; }; touch end-$index; exit 0"
        self.scene("a ps=1 port=3000\n\nb workers=2 gpus=4 # two each\n",
                   ps_0="while [ ! -f end-0 ] || [ ! -f end-1 ]; do sleep 0.05; done; exit 0",
                   worker_0=first % "exit 138", worker_1=first % "kill -KILL $$")
        launch = self.launch("--worker_flags=--out={role}-{task}", "--", "--x=a b")
        launch.wait()
        hosts = "--ps_hosts=a:3000 --worker_hosts=b:2222,b:2223 --x=a b"
        flags = ["2,3 --job_name=worker --task_index=1 %s --out=worker-1" % hosts] * 2
        self.assertEqual(self.read("logs/worker-1.log"), flags)
        self.assertEqual(self.read("logs/ps-0.log"),
                         [" --job_name=ps --task_index=0 " + hosts])
        launch.wait_line("worker:0| 0,1 --job_name=worker --task_index=0 ")
        launch.wait_line("launch: worker:0 on b has ended with 138, and is started again in 1 s")
        launch.wait_line("launch: worker:1 on b has ended with 137, and is started again in 1 s")
        launch.wait_line("launch: worker:1 on b: exit status 0, 2 starts")

    def test_permanent_error_ends_job(self):
        """After a permanent error the launcher ends the workers, then the servers, also a task that
        ignores SIGTERM."""
        self.scene("a ps=2\nb workers=3\n", ps_1="stay 0",
                   worker_1="until [ $(wc -l <staying) = 4 ]; do sleep 0.05; done; exit 1",
                   worker_2="trap '' TERM; echo >>staying; while :; do sleep 0.05; done")
        launch = self.launch("--grace=1")
        launch.ends(1, "worker:1 on b has ended with 1; its last lines are in .*worker-1.log")
        launch.wait_line("still there 1 s after SIGTERM, now SIGKILL: worker:2 on b")
        launch.wait_line("launch: worker:2 on b: exit status 137")
        ends = self.read("ends")
        self.assertEqual([ends[0], *sorted(ends[1:])], ["worker:0", "ps:0", "ps:1"])

    def wait_staying(self, n):
        path = self.path("staying")
        harness.until(lambda: os.path.exists(path) and len(self.read("staying")) == n, "all run")

    def test_signals_end_job(self):
        self.scene("a ps=1 workers=1\n", worker_0="stay 0")
        launch = self.launch()
        self.wait_staying(2)
        launch.stop(signal.SIGINT, status=130)
        self.assertEqual(self.read("ends"), ["worker:0", "ps:0"])

    def test_leftover_worker_does_not_block_end(self):
        """A worker without a server does not delay the launcher."""
        self.scene("a ps=1 workers=1\n", ps_0="until [ -f staying ]; do sleep 0.05; done; exit 0",
                   worker_0="stay 0")
        self.launch("--grace=1").ends(0, "all servers have ended with 0: ends the workers")

    def test_full_output_does_not_stop_job(self):
        """If the launcher cannot write, the job continues, and lines of the tasks are lost."""
        self.scene("a ps=1 workers=1\n", ps_0="exit 0", worker_0="echo x; exit 0")
        with open("/dev/full", "wb", buffering=0) as full:
            ended = subprocess.run(self.argv(), stdout=full, stderr=subprocess.PIPE, timeout=60,
                                   env={**os.environ, "SCRIPTS": self.dir()})
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn(b"lines are lost, the job continues", ended.stderr)

    def test_killed_launcher_ends_tasks(self):
        """The launcher itself is killed: its hosts detect that, and end the tasks."""
        self.scene("a ps=1 workers=1\n")
        launch = self.launch()
        self.wait_staying(2)
        launch.kill()

    # A task's script: it cuts its connection when the launcher has logged the start of the task.
    LOSE = ("until [ -s logs/$role-$index.log ]; do sleep 0.05; done; "
            "kill -KILL -- -$SSH_GROUP; while :; do sleep 0.05; done")
    # A worker whose first start loses its launcher, and continues until the watcher ends it.
    LOST = ("[ -f again ] || { touch again $AWAY; "
            "trap 'sleep 1; echo first >>ends; exit 143' TERM; " + LOSE + "; }; "
            "echo second >>ends; exit 0")

    def test_lost_host_restarts_its_task(self):
        """A restarted task waits until its earlier process has ended. The launcher detects a start
        also after a greeting of the host."""
        self.scene("a ps=1\nb workers=1 ssh=greets\n", worker_0=self.LOST,
                   ps_0="until grep -qs second ends; do sleep 0.05; done; exit 0")
        launch = self.launch("--restarts=1")
        launch.ends(0, "launch: host b is lost, and worker:0 with it")
        launch.wait_line("launch: worker:0 on b is started again in 1 s \\(1 of 1\\)")
        self.assertEqual(self.read("ends"), ["first", "second"])

    def test_returning_host_is_no_restart(self):
        """Failed logins to a host that returns do not count as restarts."""
        self.scene("a ps=1\nb workers=1 ssh=away\n", worker_0="AWAY=away; " + self.LOST,
                   ps_0="until grep -qs second ends; do sleep 0.05; done; exit 0")
        launch = self.launch("--restarts=1", "--host_timeout=100")
        launch.wait_line("launch: worker:0 on b is tried again in 2 s, for (100|99|98) s more")
        os.remove(self.path("away"))
        launch.ends(0, "launch: worker:0 on b: exit status 0, 2 starts")

    def test_keep_going_continues_without_lost_host(self):
        """A host does not return: the other tasks continue without it."""
        self.scene("a ps=1 workers=1\nb workers=1 ssh=away\n",
                   worker_1="AWAY=away; " + self.LOST,
                   ps_0="until [ -f end ]; do sleep 0.05; done; exit 0",
                   worker_0="until [ -f end ]; do sleep 0.05; done; exit 0")
        launch = self.launch("--keep_going", "--host_timeout=0")
        launch.wait_line("worker:1 on b: the host has been gone for --host_timeout=0 seconds")
        open(self.path("end"), "w", encoding="utf-8").close()
        launch.ends(1, "launch: the job continues without worker:1 on b")
        launch.wait_line("launch: worker:0 on a: exit status 0")
        launch.wait_line("launch: worker:1 on b: lost")

    def test_keep_going_needs_servers(self):
        """The job cannot continue without a server."""
        self.scene("a workers=1\nb ps=1 ssh=away\n", ps_0="AWAY=away; " + self.LOST)
        launch = self.launch("--keep_going", "--host_timeout=0")
        launch.ends(1, "ps:0 on b: the host has been gone for --host_timeout=0 seconds")
        launch.wait_line("the job ends, since another start would not fix it")

    def test_loss_of_host_not_counted_from_an_earlier_loss(self):
        """Another task of the host was lost for good before. --host_timeout counts from the new
        loss, not from the earlier one."""
        self.scene("a ps=1\nb workers=2 ssh=away\n",
                   ps_0="until grep -qs second ends; do sleep 0.05; done; exit 0",
                   worker_0=self.LOSE,
                   worker_1="until [ -f late ]; do sleep 0.05; done; AWAY=away; " + self.LOST)
        launch = self.launch("--keep_going", "--restarts=1", "--host_timeout=40")
        launch.wait_line("launch: the job continues without worker:0 on b")
        time.sleep(4)  # seconds that would be missing below if time counted from the first loss
        late = time.monotonic()
        open(self.path("late"), "w", encoding="utf-8").close()
        left = launch.wait_line(r"launch: worker:1 on b is tried again in 2 s, for (\d+) s more")
        self.assertGreaterEqual(int(left.group(1)), 39 - (time.monotonic() - late))
        os.remove(self.path("away"))
        launch.ends(1, "launch: worker:1 on b: exit status 0, 2 starts")

    def test_signal_during_end_only_logged(self):
        """While tasks end, the launcher only logs the first signal, so tasks keep their grace.
        Under nohup it ignores SIGHUP."""
        self.scene("a ps=1 workers=2\n",
                   worker_1="until [ $(wc -l <staying) = 2 ]; do sleep 0.05; done; exit 1",
                   worker_0="trap 'until [ -f end ]; do sleep 0.05; done; echo worker:0 >>ends; "
                   "exit 0' TERM; echo >>staying; while :; do sleep 0.05; done")
        launch = self.launch(before=["env", "--ignore-signal=HUP"])
        launch.wait_line("the job ends, since another start would not fix it")
        launch.popen.send_signal(signal.SIGHUP)
        launch.popen.send_signal(signal.SIGINT)
        launch.wait_line("launch: ending already; once more: SIGKILL to all")
        open(self.path("end"), "w", encoding="utf-8").close()
        launch.wait(status=1)
        self.assertEqual(self.read("ends"), ["worker:0", "ps:0"])
        self.assertNotIn("SIGKILL to all: ", launch.output())

    def test_missing_flock_named(self):
        self.scene("a ps=1\nb workers=1 ssh=bare\n")
        os.makedirs(self.path("bare"))
        os.symlink("/bin/bash", self.path("bare/bash"))
        self.launch().ends(2, "worker:0[|] flock is missing on this host")

    def test_unreachable_host_named(self):
        """A host cannot be reached: the launcher names it, and ends the tasks on the other
        hosts."""
        self.scene("a ps=1 workers=1\nb workers=1 ssh=dead\n")
        launch = self.launch("--quiet")
        launch.ends(1, "host b is not reached for worker:1: ssh: connect to host dead port 22")
        self.assertNotIn("| ", launch.output())

    def test_bad_hosts_and_flags_refused(self):
        for hosts, flags, line in (
                ("a ps=1\n", [], "hosts: a job needs at least one server and one worker"),
                ("a ps=1 worker=1\n", [], "hosts:1: 'worker=1'; a host has ps=..., workers="),
                ("a ps=1\nb workers=x\n", [], "hosts:2: 'workers=x': write a number from 0 to"),
                ("a ps=1\na workers=1\n", [], "hosts:2: a appears twice"),
                ("me@a ps=1\n", [], "hosts:1: 'me@a' is no host"),
                ("a ps=1 ssh=-x\n", [], "hosts:1: 'ssh=-x': no place to log in"),
                ("a\n", [], "hosts:1: a has nothing to run"),
                ("a ps=1 workers=2 gpus=3\n", [], "hosts:1: gpus=3 cannot be divided among"),
                ("a ps=1 workers=1 port=65535\n", [], "hosts:1: port=65535: its 2 tasks"),
                ("a ps=1 workers=1\n", ["--", "--task_index=1"],
                 "--task_index=1: launch itself sets"),
                ("a ps=1 workers=1\n", ["--silence=1"], "--silence: must be at least 4")):
            self.scene(hosts)
            launch = self.launch(*flags)
            launch.wait(status=2)
            self.assertEqual(len(launch.lines), 1, launch.output())
            self.assertRegex(launch.lines[0], "^launch: .*" + line)


harness.main(__name__)
