"""Reads exports of sparse tables (weirctl export) without a server: full exports, and the
patches that follow them (docs/guide/tables.md). When a file is read, all lengths and shapes are
checked, the order of the keys, and that each key is in its bucket. The checksums of its tensors
are not."""
from __future__ import annotations

import bisect
import contextlib
import ctypes
import dataclasses
import json
import math
import mmap
import operator
import os
import re
import stat
import struct
from typing import Any, Iterator, Optional

from . import _library
from ._library import Error, Invalid
from .checkpoint import widen

BUCKET = re.compile(r"(\S+) (keys|steps|rows|removed) \[(\d+)/(\d+)\]$")
KINDS = {"keys": "Q", "steps": "Q", "removed": "Q", "rows": "f"}
DTYPES = {"Q": "I64", "f": "F32", "H": "BF16"}
MAX_HEADER = 2**32  # a file with a longer one is no safetensors file
MASK = 2**64 - 1
PIECE = 1 << 10  # keys that are mixed at once
ONES = int.from_bytes((b"\1" + bytes(15)) * PIECE, "little")
USE_OF_ROWS = 11  # RNG_ROWS of base/rng.h


class Rebase(Error):
    """The patch does not continue these rows. Begin again: read a full export."""


class _Foreign(Exception):
    """The file was not written by weirctl export. The text is the end of the message."""


@contextlib.contextmanager
def _reading(path: str, kind: type[Error], action: str) -> Iterator[None]:
    """Raises errors of a file as `kind`."""
    if not isinstance(path, (str, os.PathLike)):
        raise Invalid("the path of a file is needed, not %s" % type(path).__name__)
    try:
        yield
    except OSError as e:
        raise Error("export %s: %s" % (path, e.strerror or e)) from None
    except _Foreign as e:
        raise kind("%s is no file of weirctl export%s" % (path, e)) from None
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError,
            struct.error) as e:
        raise kind("%s is damaged: %s; %s" % (
            path, e if isinstance(e, ValueError) else repr(e), action)) from None


def _mix(x: int, ones: int = 1) -> int:
    """base/rng.h's rng_mix of a number, or of several: those are 128 bits apart, and `ones` has a 1
    at the place of each. The upper 64 bits of each place have no meaning in the result."""
    mask = MASK * ones
    x = x + 0x9e3779b97f4a7c15 * ones & mask
    x = ((x ^ x >> 30) & mask) * 0xbf58476d1ce4e5b9 & mask
    x = ((x ^ x >> 27) & mask) * 0x94d049bb133111eb & mask
    return x ^ x >> 31


def _are_in_bucket(keys: memoryview, number: int, n_buckets: int) -> bool:
    """Returns whether these keys belong to the bucket."""
    for first in range(0, len(keys), PIECE):
        piece = keys[first:first + PIECE].tobytes()
        apart = bytearray(2 * len(piece))
        for i in range(8):
            apart[i::16] = piece[i::8]
        ones = ONES & (1 << 8 * len(apart)) - 1
        if (_mix(int.from_bytes(apart, "little"), ones) ^ number * ones) & (n_buckets - 1) * ones:
            return False
    return True


def _number_of(text: bytes) -> int:
    """base/rng.h's rng_text."""
    mixed = _mix(len(text))
    for at in range(0, len(text), 8):
        mixed = _mix(mixed ^ int.from_bytes(text[at:at + 8], "little"))
    return mixed


def _floats(row: memoryview) -> memoryview:
    """Returns a row as float32."""
    return row if row.format == "f" else memoryview(widen(row.tobytes())).cast("f")


@dataclasses.dataclass(frozen=True)
class _Bucket:
    """Rows of a bucket in one file, in ascending order of keys, and keys that it removes. rows: of
    the format f, or H for bf16."""
    keys: memoryview
    steps: memoryview
    rows: memoryview
    removed: memoryview

    def check(self, what: str, dim: int, number: int, n_buckets: int) -> None:
        """Raises ValueError unless the lengths, and the places and the order of the keys, are
        right."""
        n = len(self.keys)
        if (len(self.steps), len(self.rows)) != (n, dim * n):
            raise ValueError("%s has %d keys, %d steps and rows of %d numbers" % (
                what, n, len(self.steps), len(self.rows)))
        for keys in self.keys, self.removed:
            if not all(map(operator.lt, keys, keys[1:])):
                raise ValueError("the keys of %s are not in ascending order" % what)
            if not _are_in_bucket(keys, number, n_buckets):
                raise ValueError("%s has a key of another bucket" % what)
        if not set(self.removed).isdisjoint(self.keys):
            raise ValueError("%s has a key that is also removed" % what)

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
        self._is_half = settings.get("row_dtype") == "bf16"

    def find(self, key: int, first: int = 0) -> Optional[tuple[int, memoryview]]:
        """Returns last step and row of a key, as of the file `first`; None: it has no row."""
        number = _mix(key) & self.n_buckets - 1
        for file in self.files[first:]:
            bucket = file[number]
            at = bucket.find(key)
            if at is not None:
                return (bucket.steps[at], _floats(bucket.rows[self.dim * at:self.dim * (at + 1)])) \
                    if at >= 0 else None
        return None

    def first_row(self, key: int) -> memoryview:
        """Returns the initial values of a row, with the bits of the servers
        (kernels/vector/row_init.c): each product is rounded once, to float32, and then to the
        nearest bf16, ties to even, if the servers have rows in bf16."""
        stream, made = _mix(self._key ^ _mix(key)), [0.0] * self.dim
        for i in range(self.dim):
            if self._init == "uniform":
                made[i] = ((_mix(stream ^ _mix(i)) >> 40) * 2.0**-23 - 1) * self._scale
            elif self._init == "normal":
                words = [_mix(stream ^ _mix(3 * i + k)) for k in range(3)]
                total = sum(w >> shift & 0xffff for w in words for shift in (0, 16, 32, 48))
                made[i] = (total - 12 * 65535 // 2) * (self._scale * 2.0**-16)
        row = memoryview(struct.pack("%df" % self.dim, *made))
        if self._is_half:
            halves = [(u + 0x7fff + (u >> 16 & 1)) >> 16 for u in row.cast("I")]
            return _floats(memoryview(struct.pack("%dH" % self.dim, *halves)).cast("H"))
        return row.cast("f")

    def keys(self) -> Iterator[int]:
        """Yields the keys of all rows, bucket after bucket."""
        for number in range(self.n_buckets):
            for at, file in enumerate(self.files):
                for key in file[number].keys:
                    if all(newer[number].find(key) is None for newer in self.files[:at]):
                        yield key

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


def _open(path: str) -> tuple[dict[str, Any], memoryview]:
    """Returns the header of an export, and the memory of its tensors."""
    info = os.stat(path)
    if not stat.S_ISREG(info.st_mode) or info.st_size <= 8:
        raise _Foreign
    with open(path, "rb") as f:
        content = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
    n, = struct.unpack_from("<Q", content)
    if content[8:9] != b"{" or n > MAX_HEADER:
        raise _Foreign
    if n > len(content) - 8:
        raise ValueError("its header is cut off")
    header = json.loads(bytes(content[8:8 + n]))
    found = header.get("__metadata__", {}).get("format")
    if found != "weir tables":
        raise _Foreign(", but of a checkpoint; run weirctl export" if found == "weir checkpoint"
                       else "")
    return header, content[8 + n:]


def _tensor(data: memoryview, name: str, about: dict[str, Any], kind: str) -> memoryview:
    """Returns the elements of a tensor, without its shape."""
    (begin, end), shape = about["data_offsets"], about["shape"]
    if not 0 <= begin <= end <= len(data):
        raise ValueError("%s is cut off" % name)
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("%s has the shape %s" % (name, shape))
    if about["dtype"] != DTYPES[kind] or end - begin != math.prod(shape) * struct.calcsize(kind):
        raise ValueError("%s has %d bytes of %s for the shape %s" % (
            name, end - begin, about["dtype"], shape))
    return data[begin:end].cast(kind)


class _File:
    """An export: its metadata, parameters and buckets, in the memory of the file's pages."""

    def __init__(self, path: str) -> None:
        header, data = _open(path)
        self.about = header.pop("__metadata__")
        self.is_patch = "since_id" in self.about
        self.settings = {t["name"]: t for t in json.loads(self.about["tables"])}
        self.tensors: dict[str, memoryview] = {}
        parts: dict[str, memoryview] = {}
        dims = {t["name"]: [t["dim"]] for t in self.settings.values()}
        at = 0
        for name, about in header.items():
            found, shape = BUCKET.match(name), about["shape"]
            if about["data_offsets"][0] != at:
                raise ValueError("%s does not follow the tensor before it" % name)
            at = about["data_offsets"][1]
            if found:
                if shape[1:] != (dims.get(found[1]) if found[2] == "rows" else []):
                    raise ValueError("%s has the shape %s" % (name, shape))
                is_half = found[2] == "rows" and about["dtype"] == "BF16"
                parts[name] = _tensor(data, name, about, "H" if is_half else KINDS[found[2]])
            else:
                flat = _tensor(data, name, about, "f")
                self.tensors[name] = flat.cast("B").cast("f", shape) if shape and flat else flat
        if at != len(data):
            raise ValueError("%d bytes follow its last tensor" % (len(data) - at))
        self.tables = {name: [self._bucket(parts, t, i) for i in range(t["buckets"])]
                       for name, t in self.settings.items()}
        if parts:
            raise ValueError("%s belongs to no table" % min(parts))
        self.formats = {name: sorted({DTYPES[b.rows.format] for b in buckets})
                        for name, buckets in self.tables.items()}
        for name, formats in self.formats.items():
            if len(formats) != 1:
                raise ValueError("the rows of '%s' are %s" % (name, " and ".join(formats)))

    def _bucket(self, parts: dict[str, memoryview], table: dict[str, Any], i: int) -> _Bucket:
        """Returns a bucket, whose tensors it removes from `parts`."""
        def part(kind: str) -> memoryview:
            return parts.pop("%s %s [%d/%d]" % (table["name"], kind, i, table["buckets"]))
        bucket = _Bucket(part("keys"), part("steps"), part("rows"),
                         part("removed") if self.is_patch else memoryview(b"").cast("Q"))
        bucket.check("bucket %d of '%s'" % (i, table["name"]), table["dim"], i, table["buckets"])
        return bucket

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

    def _table(self, name: str) -> _Table:
        if name not in self._tables:
            raise Error("no table '%s'; the export has%s" % (
                name, ": " + ", ".join(self._tables) if self._tables else " no tables"))
        return self._tables[name]

    def count(self, table: str) -> int:
        """Returns the number of a table's rows."""
        return self._counts[self._table(table).settings["name"]]

    def keys(self, table: str) -> Iterator[int]:
        """Yields the keys of all rows, bucket after bucket, from 0 to 2**64 - 1."""
        return self._table(table).keys()

    def lookup(self, table: str, keys: Any) -> tuple[memoryview, memoryview]:
        """Returns the rows of the keys, [n, dim] of float32, and the step that changed each row
        last, [n]. A key without a row has step 0 and the initial values of its row. keys: an array
        of int64 or uint64 (buffer protocol or DLPack)."""
        t = self._table(table)
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
        with _reading(path, Rebase, "begin again with a full export"):
            file, mine = _File(path), self._file
            if not file.is_patch:
                raise Rebase("%s is a full export; read it with weir.rows.read" % path)
            since = file.about["since_id"], file.about["since_manifest_crc32c"]
            if since != mine.number:
                before = "was applied before: it " if file.number == mine.number else ""
                raise Rebase("%s %scontinues %s (%s), but these rows are of %s (%s); begin again "
                             "with a full export" % (path, before, *since, *mine.number))
            if (file.about["seed"], file.settings) != (mine.about["seed"], mine.settings):
                raise Rebase("%s is of a job with another seed or other tables than these rows; "
                             "begin again with a full export" % path)
            if file.formats != mine.formats:
                raise Rebase("%s has rows in another format than these (weirctl export "
                             "--row_dtype); begin again with a full export" % path)
            if {name: t.shape for name, t in file.tensors.items()} != \
                    {name: t.shape for name, t in mine.tensors.items()}:
                raise Rebase("%s has parameters of other names or shapes than these; begin again "
                             "with a full export" % path)
            tables, counts = {}, {}
            for name, t in self._tables.items():
                tables[name] = _Table(t.settings, t._seed, [file.tables[name], *t.files])
                counts[name] = self._counts[name] + tables[name].changed_count()
            return Rows(file, tables, counts, self.n_patches + 1)


def read(path: str) -> Rows:
    """Reads a full export. Rows are read from the file when they are looked up; the file may be
    replaced by a rename, or removed, but not overwritten. Raises Error if it is no full export, or
    is damaged."""
    with _reading(path, Error, "export it again"):
        file = _File(path)
        if file.is_patch:
            raise Error("%s is a patch; read a full export, then apply the patch" % path)
        tables = {name: _Table(t, int(file.about["seed"]), [file.tables[name]])
                  for name, t in file.settings.items()}
        return Rows(file, tables, {name: sum(len(b.keys) for b in t.files[0])
                                   for name, t in tables.items()}, 0)
