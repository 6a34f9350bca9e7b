"""Notes of a measured program for the program that measures it: lines of JSON, appended to the file
that PEERS_NOTES names. Standard library only."""
import json
import os
import time


def note(kind, **values):
    """Appends a line. Each line is one write, so several processes may append to one file."""
    line = json.dumps({"kind": kind, "at": time.time(), **values}) + "\n"
    out = os.open(os.environ["PEERS_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(out, line.encode())
    finally:
        os.close(out)


def options():
    """Returns the options of the run, a dictionary."""
    return json.loads(os.environ["PEERS_OPTIONS"])


def read(path, offset=0):
    """Returns (notes, offset of the next read) of the whole lines from an offset on."""
    try:
        with open(path, "rb") as f:
            f.seek(offset)
            text = f.read()
    except FileNotFoundError:
        return [], offset
    whole = text[:text.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole)
