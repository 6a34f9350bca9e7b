"""python3 -m weir prints the paths of the library, the programs and the examples.
python3 -m weir examples prints only the folder of the examples."""
from __future__ import annotations

import os
import sys

from . import __version__
from ._library import HERE, Error, library, version
from .cluster import program

PROGRAMS = ("weir-ps", "weir-worker", "weir-task", "weirctl")


def examples() -> str:
    """Returns the folder of char_gpt_weir.py in a wheel, an installation or a source tree."""
    beside = os.path.join(HERE, "installed/bin")
    try:
        beside = os.path.dirname(os.path.realpath(program("weir-ps")))
    except Error:
        pass
    for folder in (os.path.join(HERE, "installed/share/weir/examples"),
                   os.path.join(beside, "../share/weir/examples"),
                   os.path.join(HERE, "../../examples/python")):
        if os.path.exists(os.path.join(folder, "char_gpt_weir.py")):
            return os.path.normpath(folder)
    raise Error("weir: its examples are not here; they are in share/weir/examples of an "
                "installation, and in a wheel that scripts/make_wheel made")


def main() -> None:
    """Prints the paths. Returns the exit status, which is not 0 if a path is missing."""
    if sys.argv[1:] == ["examples"]:
        print(examples())
        return
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    print("weir", __version__, "in", HERE)
    missing = False
    rows = [("library", lambda: "%s, %s" % (version(), getattr(library(), "_name"))),
            *[(name, lambda name=name: program(name)) for name in PROGRAMS],
            ("examples", examples)]
    for name, find in rows:
        try:
            print("%-12s%s" % (name, find()))
        except (Error, ImportError) as e:
            print("%-12s%s" % (name, e))
            missing = True
    sys.exit(missing)


if __name__ == "__main__":
    try:
        main()
    except Error as error:
        sys.exit(str(error))
