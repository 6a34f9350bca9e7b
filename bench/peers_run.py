"""A run of programs: starts them, notes, ends all of them."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import peers_env
from common import SOURCE
from peers_watch import Bytes, Watch, wait_until

PROGRAMS = os.path.join(SOURCE, "bench/peer")
BIN = os.path.join(SOURCE, "build/bin")
sys.path.insert(0, PROGRAMS)


class Failed(Exception):
    """A run that did not end as it should. The text is the reason."""


class Run:
    """Processes of one run, its folder and its measurements."""

    def __init__(self, args, options, role_of=None, counted=None, every=0.05):
        self.args, self.options = args, options
        self.folder = tempfile.mkdtemp(prefix="peers-", dir=args.scratch)
        self.notes = os.path.join(self.folder, "notes")
        self.env = {**os.environ, "PEERS_NOTES": self.notes, "PEERS_OPTIONS": json.dumps(options),
                    "PYTHONPATH": PROGRAMS, "HOME": self.folder, "PYTHONUNBUFFERED": "1"}
        self.processes, self.watch = [], Watch(role_of, every)
        self.bytes = Bytes(*(counted or ()))

    def python(self, peer):
        return peers_env.python(self.args.cache, peer)

    def start(self, role, argv, **env):
        name = os.path.join(self.folder, "%d-%s.log" % (
            len(self.processes), role.replace(" ", "").replace(":", "")))
        with open(name, "w", encoding="utf-8") as log:
            p = subprocess.Popen(argv, env={**self.env, **env}, cwd=self.folder, stdout=log,
                                 stderr=subprocess.STDOUT, start_new_session=True)
        self.watch.add(role, p.pid)
        self.processes.append((p, name))
        return p

    def start_when_listening(self, port, role, argv, **env):
        """Starts a program as soon as a server listens at the port."""
        found = wait_until(lambda: self.failure() or listens(port), 60)
        if found is not True:
            raise Failed(found or "nothing listens at port %d within 60 s" % port)
        return self.start(role, argv, **env)

    def failure(self):
        """Returns the reason if a process has failed."""
        for p, name in self.processes:
            if p.poll() not in (None, 0):
                return "%s exited with %d: %s" % (os.path.basename(name), p.returncode, tail(name))
        return None

    def close(self):
        self.watch.end()
        for p, _ in self.processes:
            p.wait()
        self.watch.close()
        reap()
        if not self.args.keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def reap():
    """Collects adopted processes that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def tail(path, n=300):
    with open(path, encoding="utf-8", errors="replace") as f:
        lines = [l.strip() for l in f if l.strip()]
    return " / ".join(lines[-3:])[-n:] or "no output"


def listens(port):
    with open("/proc/net/tcp", encoding="ascii") as f:
        return any(fields[3] == "0A" and int(fields[1].split(":")[1], 16) == port
                   for fields in map(str.split, list(f)[1:]))


def weir_env():
    return {"PYTHONPATH": PROGRAMS + ":" + os.path.join(SOURCE, "python"),
            "WEIR_LIBRARY": os.path.join(SOURCE, "build/lib/libweir.so.0"),
            "WEIR_PROGRAMS": BIN}


def flower_home(run):
    """Writes the configuration of Flower's command line."""
    run.env["PATH"] = os.path.dirname(run.python("flower")) + ":" + run.env["PATH"]
    run.env["FLWR_HOME"] = run.folder
    with open(os.path.join(run.folder, "config.toml"), "w", encoding="utf-8") as f:
        f.write("[superlink]\ndefault = \"here\"\n\n[superlink.here]\n"
                "address = \"127.0.0.1:8000\"\ninsecure = true\n")


def flower_app(run, name):
    return shutil.copytree(os.path.join(PROGRAMS, name), os.path.join(run.folder, "app"))


FLOWER_LINK = ["flower-superlink", "--insecure", "--host=0.0.0.0",
               "--disable-runtime-dependency-installation"]


def flower_node(i, n, address):
    return ["flower-supernode", "--insecure", "--superlink=%s:8000" % address,
            "--port=%d" % (9094 + i), "--node-config=partition-id=%d num-partitions=%d" % (i, n)]
