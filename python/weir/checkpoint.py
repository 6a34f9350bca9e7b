"""Reads checkpoints of servers (docs/guide/checkpoints.md) without a server and without numpy."""
from __future__ import annotations

import dataclasses
import json
import math
import mmap
import os
import re
import struct
from typing import Any, Optional

from ._library import Error

PART = re.compile(r"(\S+?)(?: slot (\d+))?(?: \[(\d+):(\d+)\])?$")
PENDING = ("pending keys", "pending steps", "pending counts")
BUCKET = re.compile(r"(\S+) (keys|steps|rows|slot \d+|pending \w+) \[(\d+)/(\d+)\]$")


@dataclasses.dataclass
class Table:
    """The rows of a sparse table, bucket after bucket. keys: unsigned 64-bit numbers. steps: of
    each row, the version that changed it last. rows: float32 array of n rows, which is exact if the
    servers have them in bf16. slots: the optimizer's state, arrays with a row for each key.
    pending_keys: keys that have no row yet, because fewer than admit_after steps have contributed
    to them. pending_steps: of each, the version that counted such a step last. pending_counts: of
    each, the number of these steps."""
    keys: memoryview
    steps: memoryview
    rows: memoryview
    slots: list[memoryview]
    pending_keys: memoryview
    pending_steps: memoryview
    pending_counts: memoryview


@dataclasses.dataclass
class Checkpoint:
    """The state of a job at a step. tensors: {name: memoryview}, writable float32 arrays with the
    shapes of the parameters. slots: {name: list of such arrays}, the optimizer's state of each
    parameter that has one; for adam and adamw the first and the second moment. updates: {name:
    number of updates of these slots}, which is below `step` if the parameter had no gradient in
    some steps."""
    path: str  # path of the manifest
    step: int  # number of steps made
    position: int  # position of the next sample, counted over all passes
    job: dict[str, Any]  # settings in the manifest: optimizer, seed, train_steps and so on
    tensors: dict[str, memoryview]
    slots: dict[str, list[memoryview]]
    updates: dict[str, int]
    tables: dict[str, Table]  # sparse tables, by name


# {(table, kind of tensor, number of the bucket): (shape, content)}
Buckets = dict[tuple[str, str, int], tuple[list[int], bytes]]


def newest(folder: str) -> str:
    """Returns the manifest of a folder's newest checkpoint. Raises Error if it has no
    checkpoint."""
    best: tuple[Any, ...] = ()
    for name in os.listdir(folder):
        found = re.fullmatch(r"weir-(?:(\d+)\.(\d+)-)?(\d+)\.json", name)
        if found:
            best = max(best, (*(int(n or 0) for n in found.groups()), name))
    if not best:
        raise Error("%s has no checkpoint" % folder)
    return os.path.join(folder, best[-1])


def read(path: str) -> Checkpoint:
    """Reads a checkpoint. path: its manifest (weir-E.G-STEP.json), or a folder, of which it reads
    the newest checkpoint. All files of the checkpoint must lie beside the manifest. Raises Error if
    a file is missing or not whole. read() compares the sizes of files, but no checksums."""
    path = newest(path) if os.path.isdir(path) else path
    try:
        with open(path, encoding="utf-8") as f:
            manifest = json.load(f)
        if manifest["format"] != "weir checkpoint":
            raise KeyError("format")
        return _read_files(path, manifest)
    except OSError as e:
        raise Error("checkpoint %s: %s: %s" % (path, e.filename, e.strerror)) from None
    except UnicodeDecodeError:
        raise Error("checkpoint %s is no manifest; weir.rows.read reads exports" % path) from None
    except (LookupError, ValueError, TypeError, AttributeError, struct.error) as e:
        raise Error("checkpoint %s is damaged, or no checkpoint: %r" % (path, e)) from None


def _room(shape: list[int]) -> memoryview:
    """Returns a new float32 array of this shape, with zeros."""
    flat = memoryview(bytearray(4 * math.prod(shape)))
    return flat.cast("f", shape) if shape else flat.cast("f")


def _read_files(path: str, manifest: dict[str, Any]) -> Checkpoint:
    shapes = {p["name"]: p["shape"] for p in manifest["parameters"]}
    out = Checkpoint(path, manifest["step"], manifest["position"], manifest["job"],
                     {name: _room(shape) for name, shape in shapes.items()}, {}, {}, {})
    since = manifest.get("parent", {}).get("slots_since", 0)  # in a region
    missing = {name: math.prod(shape) for name, shape in shapes.items()}
    buckets: Buckets = {}
    for file in manifest["files"]:
        where = os.path.join(os.path.dirname(path), file["name"])
        if os.path.getsize(where) != file["bytes"]:
            raise ValueError("%s does not have %d bytes" % (file["name"], file["bytes"]))
        with open(where, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as content:
            _read_file(content, shapes, out, missing, since, buckets)
    lost = next((name for name, n in missing.items() if n), None)
    if lost is not None:
        raise ValueError("parts of '%s' are missing" % lost)
    for table in manifest.get("tables", []):
        out.tables[table["name"]] = _join(table, buckets)
    return out


def widen(halves: bytes) -> bytearray:
    """Returns numbers of bf16 as float32. bf16 is the upper half of float32, so this is exact."""
    wide = bytearray(2 * len(halves))
    wide[2::4], wide[3::4] = halves[::2], halves[1::2]
    return wide


def _join(table: dict[str, Any], buckets: Buckets) -> Table:
    """Returns the rows of a table of the manifest. Raises KeyError if a part of a bucket is
    missing."""
    needed = {"keys", *(PENDING if table["admit_after"] > 1 else ())}
    kinds = sorted({kind for name, kind, _ in buckets if name == table["name"]} | needed)
    arrays = {kind: memoryview(b"").cast("Q") for kind in PENDING}
    for kind in kinds:
        parts = [buckets[table["name"], kind, i] for i in range(table["buckets"])]
        content = b"".join(content for _, content in parts)
        is_half = kind == "rows" and table.get("row_dtype") == "bf16"
        flat = memoryview(widen(content) if is_half else content)
        if kind in ("keys", "steps", *PENDING):
            arrays[kind] = flat.cast("Q")
        else:
            shape = [sum(shape[0] for shape, _ in parts), parts[0][0][1]]
            arrays[kind] = flat.cast("f", shape) if flat.nbytes else flat.cast("f")
    return Table(arrays["keys"], arrays["steps"], arrays["rows"],
                 [arrays[kind] for kind in kinds if kind.startswith("slot")],
                 *(arrays[kind] for kind in PENDING))


def _read_file(content: Any, shapes: dict[str, list[int]], out: Checkpoint,
               missing: dict[str, int], since: int, buckets: Buckets) -> None:
    (n,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + n])
    about = header["__metadata__"]
    for key, tensor in header.items():
        if key == "__metadata__":
            continue
        first, last = tensor["data_offsets"]
        bucket = BUCKET.match(key)
        if bucket:
            table, kind, number, _ = bucket.groups()
            buckets[table, kind, int(number)] = (tensor["shape"],
                                                 content[8 + n + first:8 + n + last])
            continue
        name, slot, begin, end = PART.match(key).groups()
        to: Optional[memoryview] = out.tensors[name]
        if slot is not None:
            slots = out.slots.setdefault(name, [])
            slots += [_room(shapes[name]) for _ in range(int(slot) + 1 - len(slots))]
            to = slots[int(slot)]
        at = 4 * int(begin or 0)
        to.cast("B")[at:at + last - first] = content[8 + n + first:8 + n + last]
        if slot is None:
            missing[name] -= (last - first) // 4
            made = int(about.get("version " + key, out.step))
            made -= int(about.get("idle " + key, 0)) + since
            out.updates[name] = min(out.updates.get(name, made), made)
