#!/usr/bin/python3
"""A system without /proc, as in a chroot: the worker finds the files beside it by the path with
which it was started. If there is no such path, the worker names the missing information."""
# label: unit
import os
import sys
import unittest

import harness

WITHOUT_PROC = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]),
                "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
WORKER = harness.program("worker")
# Start by a descriptor: the path that the kernel records leads through /proc.
BY_DESCRIPTOR = "import os, sys; os.execve(os.open(sys.argv[1], os.O_RDONLY), sys.argv[1:], " \
    "os.environ)"


def why_not():
    try:
        done = harness.capture([*WITHOUT_PROC, "true"])
    except OSError as e:
        return str(e)
    return "no namespace can be made here: " + done.stderr.strip() if done.returncode else None


WHY_NOT = why_not()


@unittest.skipIf(harness.SANITIZE, "sanitizers need /proc")
@unittest.skipIf(WHY_NOT, WHY_NOT)
class NoProc(harness.Test):
    def flags(self):
        return ["--model=softmax", "--train_steps=3", "--batch_size=20", "--gpus=none",
                "--data_dir=" + self.data()]

    def test_models_found_by_path_of_the_start(self):
        self.start("worker", [*WITHOUT_PROC, WORKER, *self.flags()]).wait(60)

    def test_unknown_path_named(self):
        worker = self.start("worker", [*WITHOUT_PROC, sys.executable, "-c", BY_DESCRIPTOR, WORKER,
                                       *self.flags()])
        worker.ends(1, 'cannot find a model named "softmax": the folder of Weir\'s models is '
                    r"unknown, because this program's own path is unknown \(/proc/self/exe: "
                    r"No such file or directory\); name the folder with --models_dir")


harness.main(__name__)
