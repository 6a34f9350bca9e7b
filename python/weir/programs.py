"""weir-ps, weir-worker, weir-task and weirctl as commands of a Python environment: each becomes the
program that the wheel carries, in the same process."""
from __future__ import annotations

import functools
import os
import signal
import sys

from ._library import HERE
from ._loading import advice


def become(name: str) -> None:
    """The carried program of this name, with the command's arguments. WEIR_PROGRAMS does not count:
    it may name the folder of these commands."""
    path = os.path.join(HERE, "installed/bin", name)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and so by what it becomes
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execv(path, sys.argv)
    except OSError as e:
        sys.exit("%s: %s cannot be started: %s" % (name, path, advice(
            e.strerror or str(e), "install the wheel again")))


weir_ps, weir_worker, weir_task, weirctl = (
    functools.partial(become, name) for name in ("weir-ps", "weir-worker", "weir-task", "weirctl"))
