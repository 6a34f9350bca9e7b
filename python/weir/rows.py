"""Reads exports of sparse tables (weirctl export) without a server: full exports, and the patches
that follow them (docs/guide/tables.md)."""
from __future__ import annotations

import bisect
import ctypes
import dataclasses
import json
import math
import mmap
import re
import struct
from typing import Any, Iterator, Optional

from . import _library
from ._library import Error

BUCKET = re.compile(r"(\S+) (keys|steps|rows|removed) \[(\d+)/(\d+)\]$")
KINDS = {"keys": "Q", "steps": "Q", "removed": "Q", "rows": "f"}
MASK = 2**64 - 1
USE_OF_ROWS = 11  # RNG_ROWS of base/rng.h


class Rebase(Error):
    """The patch does not continue these rows. Begin again: read a full export."""


def _mix(x: int) -> int:
    """base/rng.h's rng_mix."""
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ x >> 27) * 0x94d049bb133111eb & MASK
    return x ^ x >> 31


def _number_of(text: bytes) -> int:
    """base/rng.h's rng_text."""
    mixed = _mix(len(text))
    for at in range(0, len(text), 8):
        mixed = _mix(mixed ^ int.from_bytes(text[at:at + 8], "little"))
    return mixed


@dataclasses.dataclass(frozen=True)
class _Bucket:
    """Rows of a bucket in one file, in ascending order of keys, and keys that it removes."""
    keys: memoryview
    steps: memoryview
    rows: memoryview
    removed: memoryview

    def find(self, key: int) -> Optional[int]:
        """Returns the place of a key's row: -1: the key is removed; None: it is not here."""
        at = bisect.bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            return at
        at = bisect.bisect_left(self.removed, key)
        return -1 if at < len(self.removed) and self.removed[at] == key else None


class _Table:
    """A table: its settings, and a list of buckets for each file, the newest first."""

    def __init__(self, settings: dict[str, Any], seed: int, files: list[list[_Bucket]]) -> None:
        self.settings, self.files, self._seed = settings, files, seed
        self.dim, self.n_buckets = int(settings["dim"]), int(settings["buckets"])
        name = _number_of(settings["name"].encode())
        self._key = _mix(_mix(_mix(seed) ^ USE_OF_ROWS) ^ name)
        scale, = struct.unpack("f", struct.pack("f", settings["init_scale"]))
        self._init, self._scale = settings["init"], scale

    def find(self, key: int, first: int = 0) -> Optional[tuple[int, memoryview]]:
        """Returns last step and row of a key, as of the file `first`; None: it has no row."""
        number = _mix(key) & self.n_buckets - 1
        for file in self.files[first:]:
            bucket = file[number]
            at = bucket.find(key)
            if at is not None:
                return (bucket.steps[at], bucket.rows[self.dim * at:self.dim * (at + 1)]) \
                    if at >= 0 else None
        return None

    def first_row(self, key: int) -> memoryview:
        """Returns the initial values of a row, with the bits of the servers
        (kernels/vector/row_init.c): each product is rounded once, to float32."""
        stream, made = _mix(self._key ^ _mix(key)), [0.0] * self.dim
        for i in range(self.dim):
            if self._init == "uniform":
                made[i] = ((_mix(stream ^ _mix(i)) >> 40) * 2.0**-23 - 1) * self._scale
            elif self._init == "normal":
                words = [_mix(stream ^ _mix(3 * i + k)) for k in range(3)]
                total = sum(w >> shift & 0xffff for w in words for shift in (0, 16, 32, 48))
                made[i] = (total - 12 * 65535 // 2) * (self._scale * 2.0**-16)
        return memoryview(struct.pack("%df" % self.dim, *made)).cast("f")

    def changed_count(self) -> int:
        """Returns by how many rows the newest file changes their number. Raises ValueError if it
        removes a key that has no row."""
        change = 0
        for bucket in self.files[0]:
            change += sum(self.find(key, 1) is None for key in bucket.keys)
            for key in bucket.removed:
                if self.find(key, 1) is None:
                    raise ValueError("key %d is removed, but has no row" % key)
            change -= len(bucket.removed)
        return change


class _File:
    """An export: its metadata, parameters and buckets, in the memory of the file's pages."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as f:
            content = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
        n, = struct.unpack_from("<Q", content)
        header = json.loads(bytes(content[8:8 + n]))
        self.about = header.pop("__metadata__")
        if self.about["format"] != "weir tables":
            raise ValueError("the format is %r" % self.about["format"])
        self.tensors: dict[str, memoryview] = {}
        parts: dict[tuple[str, int, str], memoryview] = {}
        for name, about in header.items():
            begin, end = about["data_offsets"]
            if not 0 <= begin <= end <= len(content) - 8 - n:
                raise ValueError("%s is cut off" % name)
            raw, found = content[8 + n + begin:8 + n + end], BUCKET.match(name)
            if found:
                parts[found[1], int(found[3]), found[2]] = raw.cast(KINDS[found[2]])
            else:
                shape = about["shape"]
                flat = raw.cast("f")
                self.tensors[name] = raw.cast("f", shape) if shape and math.prod(shape) else flat
        self.tables: dict[str, list[_Bucket]] = {}
        none = memoryview(b"").cast("Q")
        for table in json.loads(self.about["tables"]) if self.about["tables"] != "{}" else ():
            name = table["name"]
            self.tables[name] = [_Bucket(*(parts[name, i, kind] for kind in (
                "keys", "steps", "rows")), parts.get((name, i, "removed"), none)) for i in range(
                    table["buckets"])]

    @property
    def number(self) -> tuple[str, str]:
        return self.about["id"], self.about["manifest_crc32c"]


class Rows:
    """Rows and parameters of one step of a job. They never change: apply() returns new ones, which
    share the memory of the old ones. Any thread may read them.

    n_patches: number of patches since the full export. Lookups search each of them, so read a full
    export again after some. step: number of steps made. id: the checkpoint, for weirctl
    export --since. tensors: {name: memoryview}, the parameters, float32. tables: {name:
    settings}."""

    def __init__(self, file: _File, tables: dict[str, _Table], counts: dict[str, int],
                 n_patches: int) -> None:
        self._file, self._tables, self._counts = file, tables, counts
        self.step, self.id, self.tensors = int(file.about["step"]), file.number[0], file.tensors
        self.tables = {name: table.settings for name, table in tables.items()}
        self.n_patches = n_patches
        for name, n in counts.items():
            if n != int(file.about["count " + name]):
                raise ValueError("table '%s' has %d rows instead of %s" % (
                    name, n, file.about["count " + name]))

    def count(self, table: str) -> int:
        """Returns the number of a table's rows."""
        return self._counts[table]

    def keys(self, table: str) -> Iterator[int]:
        """Yields the keys of all rows, bucket after bucket, from 0 to 2**64 - 1."""
        t = self._tables[table]
        for number in range(t.n_buckets):
            for at, file in enumerate(t.files):
                for key in file[number].keys:
                    if all(newer[number].find(key) is None for newer in t.files[:at]):
                        yield key

    def lookup(self, table: str, keys: Any) -> tuple[memoryview, memoryview]:
        """Returns the rows of the keys, [n, dim] of float32, and the step that changed each row
        last, [n]. A key without a row has step 0 and the initial values of its row. keys: an array
        of int64 or uint64 (buffer protocol or DLPack)."""
        t = self._tables[table]
        at, n, held = _library.elements(keys, _library.KEYS)
        numbers = (ctypes.c_uint64 * n).from_address(at) if n else ()
        rows, steps = bytearray(4 * t.dim * n), bytearray(8 * n)
        to, last = memoryview(rows).cast("f"), memoryview(steps).cast("Q")
        for i, key in enumerate(numbers):
            found = t.find(key)
            last[i], to[t.dim * i:t.dim * (i + 1)] = found or (0, t.first_row(key))
        del held
        return memoryview(rows).cast("f", [n, t.dim]) if n else to, last

    def apply(self, path: str) -> "Rows":
        """Returns the rows after a patch. Raises Rebase unless the patch continues these rows:
        it belongs to another job, skips a checkpoint, was applied before, or is damaged."""
        try:
            file = _File(path)
            about = file.about
            since = about.get("since_id"), about.get("since_manifest_crc32c")
            same = all(about[k] == self._file.about[k] for k in ("seed",))
            if since != self._file.number or not same:
                raise Rebase("%s %s, but these rows are of %s; begin again with a full export" % (
                    path, "is a full export" if since[0] is None else "continues %s (%s)" % since,
                    "%s (%s)" % self._file.number))
            tables, counts = {}, {}
            for name, t in self._tables.items():
                tables[name] = _Table(t.settings, t._seed, [file.tables[name], *t.files])
                counts[name] = self._counts[name] + tables[name].changed_count()
            return Rows(file, tables, counts, self.n_patches + 1)
        except OSError as e:
            raise Error("export %s: %s" % (path, e.strerror)) from None
        except (LookupError, ValueError, TypeError, AttributeError, struct.error) as e:
            raise Rebase("patch %s is damaged: %r; begin again with a full export" % (
                path, e)) from None


def read(path: str) -> Rows:
    """Reads a full export. Rows are read from the file when they are looked up; the file may be
    replaced or removed. Raises Error if it is no full export, or is damaged."""
    try:
        file = _File(path)
        if "since_id" in file.about:
            raise ValueError("it is a patch")
        tables = {t["name"]: _Table(t, int(file.about["seed"]), [file.tables[t["name"]]])
                  for t in (json.loads(file.about["tables"]) if file.tables else ())}
        return Rows(file, tables, {name: sum(len(b.keys) for b in t.files[0])
                                   for name, t in tables.items()}, 0)
    except OSError as e:
        raise Error("export %s: %s" % (path, e.strerror)) from None
    except (LookupError, ValueError, TypeError, AttributeError, struct.error) as e:
        raise Error("export %s is damaged, or no full export: %r" % (path, e)) from None
