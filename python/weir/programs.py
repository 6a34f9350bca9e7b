"""The commands weir-ps, weir-worker, weir-task and weirctl of a Python environment. Each becomes
the program of this name in the wheel, in the same process."""
from __future__ import annotations

import functools
import os
import signal
import sys

from ._library import HERE
from ._loading import advice


def become(name: str) -> None:
    """Replaces this process by the wheel's program of this name, with the same arguments. Ignores
    WEIR_PROGRAMS, which may name the folder of these commands."""
    path = os.path.join(HERE, "installed/bin", name)
    # Python ignores these signals, and the program would inherit that.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execv(path, sys.argv)
    except OSError as e:
        sys.exit("%s: %s cannot be started: %s" % (name, path, advice(
            e.strerror or str(e), "install the wheel again")))


weir_ps, weir_worker, weir_task, weirctl = (
    functools.partial(become, name) for name in ("weir-ps", "weir-worker", "weir-task", "weirctl"))
