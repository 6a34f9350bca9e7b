"""Explains why a library or program of Weir does not start on this system, and how to fix that."""
from __future__ import annotations

import os
import platform
import re

ELSEWHERE = "build Weir on this system (README.md)"


def glibc() -> str:
    """Returns the version of this process' glibc, such as "2.36", or "" with another C library."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")[2]
    except (AttributeError, OSError, ValueError):
        return ""


def advice(why: str, otherwise: str) -> str:
    """Returns the loader's error `why`, followed by the fix if there is a known one."""
    return "%s; %s" % (why, _fix(why) or otherwise)


def _fix(why: str) -> str:
    if not glibc():
        return ("the library needs glibc, and this Python has another C library (such as Alpine's "
                "musl) or another system than Linux: use a Python of Debian, Ubuntu or Fedora")
    old = re.search(r"version `(GLIBC|GLIBCXX|CXXABI)_([\d.]+)' not found", why)
    if old and old.group(1) == "GLIBC":
        return ("the library needs glibc %s or later, and this system has %s: use a later system, "
                "or %s" %
                (old.group(2), glibc(), ELSEWHERE))
    if old:
        return ("libstdc++ is older than the version that the library needs: update the system's "
                "libstdc++, or that of this Python's environment")
    if re.search("wrong ELF class|invalid ELF header|Exec format", why):
        return "the file is damaged, or for another kind of machine than %s" % platform.machine()
    if re.search("^Permission denied$|failed to map segment", why):
        return "its file system may be mounted noexec: create the environment elsewhere"
    lacks = re.match(r"(lib[\w+-]+\.so\S*): cannot open shared object file", why)
    if not lacks or lacks.group(1).startswith("libweir."):
        return ""
    fix = "install the package that has %s" % lacks.group(1)
    if re.match(r"lib(stdc\+\+|gcc_s|z)\.so", lacks.group(1)):  # the wheel lacks these libraries
        return fix
    return fix + ", or the wheel that carries it (scripts/make_wheel)"
