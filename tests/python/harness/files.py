"""Reads and writes whole files in one call."""
import array
import json
import struct

from .process import Failure
from .settings import source


def read_text(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def read_source(*names):
    """Returns the text of a file of the source tree."""
    return read_text(source(*names))


def read_bytes(path):
    with open(path, "rb") as f:
        return f.read()


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def write_file(path, content, mode="w"):
    """Writes text as UTF-8, or bytes."""
    binary = not isinstance(content, str)
    with open(path, mode + "b" if binary else mode, encoding=None if binary else "utf-8") as f:
        f.write(content)


def damage(path):
    """Changes one bit of a byte near the end of the file."""
    content = bytearray(read_bytes(path))
    content[-5] ^= 4
    with open(path, "r+b") as f:
        f.write(content)


def append_file(path, content):
    """Appends text as UTF-8, or bytes."""
    write_file(path, content, "a")


def safetensors_metadata(path):
    """Returns the __metadata__ of a safetensors file."""
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        return json.loads(f.read(n)).get("__metadata__", {})


def change_metadata(path, to, change):
    """Copies a safetensors file; change() returns the __metadata__ of the copy from that of the
    file."""
    content = read_bytes(path)
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header["__metadata__"] = change(header["__metadata__"])
    text = json.dumps(header).encode()
    write_file(to, struct.pack("<Q", len(text)) + text + content[begin:])


def read_safetensors(path):
    """Returns {name: (shape, array.array)} of a file with tensors of float32, bf16 (the bits as
    numbers), or 64-bit integers, which are unsigned here."""
    kinds = {"F32": "f", "BF16": "H", "I64": "Q"}
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        body = f.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in kinds:
            raise Failure("%s: %s has dtype %s" % (path, name, entry["dtype"]))
        begin, end = entry["data_offsets"]
        values = array.array(kinds[entry["dtype"]])
        values.frombytes(body[begin:end])
        tensors[name] = (entry["shape"], values)
    return tensors
