"""Finds the files of a checkpoint folder by their step. Their names may also have a term
(checkpoint/names.h): weir-40.json in epoch 0, weir-3.1-40.json later."""
import os
import re

NAME = re.compile(r"weir-(?:(\d+)\.(\d+)-)?(\d+)(-\d+-of-\d+\.safetensors|\.json)")


def find(folder):
    """Returns (step, rest of the name, term, path) of all files, the oldest first."""
    found = []
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        m = NAME.fullmatch(name)
        if m:
            term = (int(m.group(1) or 0), int(m.group(2) or 0))
            found.append((int(m.group(3)), m.group(4), term, os.path.join(folder, name)))
    return sorted(found, key=lambda f: (f[2], f[0]))


def steps(folder):
    """Returns the steps of the manifests, in order."""
    return sorted(f[0] for f in find(folder) if f[1] == ".json")


def path(folder, step, what=".json"):
    """Returns the path of the newest file of that step. what: the end of the file's name."""
    paths = [f[3] for f in find(folder) if f[:2] == (step, what)]
    if not paths:
        raise AssertionError("no %s of step %d in %s" % (what, step, sorted(os.listdir(folder))))
    return paths[-1]
