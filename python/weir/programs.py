"""weir-ps, weir-worker, weir-task and weirctl as commands of a Python environment: each becomes the
program that the wheel carries, in the same process."""
from __future__ import annotations

import os
import signal
import sys

from ._library import HERE
from ._loading import advice


def main() -> None:
    """The program that the command is named after, with its arguments."""
    name = os.path.basename(sys.argv[0])
    path = os.path.join(HERE, "installed/bin", name)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and so by what it becomes
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execv(path, sys.argv)
    except OSError as e:
        sys.exit("%s: %s cannot be started: %s" % (name, path, advice(
            e.strerror or str(e), "install the wheel again")))
