"""The tables of a member: libweir's C API (weir_tables.h) as methods of Member."""
from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from typing import Any, Iterator, Optional, Union

from . import _library
from ._library import AGAIN, REBASED, Invalid


def key(text: Union[str, bytes]) -> int:
    """Returns a key for a text, for example "country=fr", from 0 to 2**64 - 1; the same in all
    programs. Two of 100 million texts have the same key with a probability of about 0.0003."""
    made = text.encode() if isinstance(text, str) else bytes(text)
    return int(_library.library().weir_key(made, len(made)))


class Tables:
    """Methods of Member for sparse tables: rows of float32, each with a 64-bit key.

    Keys are an array of int64 or uint64 (buffer protocol or DLPack) of any shape; the 64 bits of an
    int64 are the key. Keys may be in any order and repeat; None: no key. Any number of threads at
    once may call lookup, next_keys and push_rows; calls for one table wait for each other."""
    _at: Any

    def __init__(self) -> None:
        self._dims: list[int] = []
        self._names: list[str] = []
        self._locks: list[Any] = []

    def table(self, name: str, dim: int, max_rows: int, **settings: Any) -> int:
        """Adds a table of rows of `dim` floats, and returns its number. Must be called before the
        first step; all members add the same tables in the same order. max_rows: largest number of
        rows. settings: docs/reference/weir-tables-h.md has them; None: the default."""
        with self._at as h:
            table: int = h.check(h.lib.weir_table(h.pointer, name.encode(), dim, max_rows))
            self._dims.append(dim)
            self._names.append(name)
            self._locks.append(threading.RLock())
            for setting, value in settings.items():
                if value is not None:
                    h.check(h.lib.weir_table_set(h.pointer, table, setting.encode(),
                                                 str(value).encode()))
            return table

    def _dim(self, table: int) -> int:
        if not 0 <= table < len(self._dims):
            raise Invalid("there is no table %d; %d were added by table()" % (
                table, len(self._dims)))
        return self._dims[table]

    def lookup(self, table: int, keys: Any,
               timeout: Optional[float] = None) -> Optional[memoryview]:
        """Returns the rows of the keys in a new array, [n, dim] of float32; if `keys` is empty, an
        empty flat array. Before the table's push_rows() these are rows of the current
        step, after it those of the next step, and after the last step, until close(), the last
        ones. A key without a row has its initial values. Returns None if the step no longer counts,
        as wait() returns False. After Timeout, call lookup() again."""
        begin = time.monotonic()
        with self._call(table, timeout) as h:
            dim, (at, n, held) = self._dim(table), self._keys(table, keys)
            rows = (ctypes.c_float * (n * dim))()
            left = None if timeout is None else timeout - (time.monotonic() - begin)
            code = h.await_(lambda ms: h.lib.weir_lookup(h.pointer, table, at, n, rows, ms), left)
            del held
            if code == AGAIN:
                raise self._late(table, timeout)
            if code == REBASED:
                return None
            flat = memoryview(rows).cast("B")
            return flat.cast("f", [n, dim]) if n else flat.cast("f")

    def next_keys(self, table: int, keys: Any) -> None:
        """Names the keys of this member's next step, whose rows then arrive with the answer to the
        table's next push_rows(), so that lookup() sends no request for them. The last call before
        the push counts."""
        with self._call(table) as h:
            at, n, held = self._keys(table, keys)
            h.check(h.lib.weir_next_keys(h.pointer, table, at, n))
            del held

    def push_rows(self, table: int, keys: Any, gradients: Any, *, samples: float) -> None:
        """Pushes the gradients [n, dim] of the keys' rows, once for each table and step, and does
        not wait. Gradients of equal keys are added. samples: number of samples of which the
        gradient is the mean, as in push(); 0: the push counts and adds nothing, and the gradients
        may be None. The arrays may be used again at once."""
        with self._call(table) as h:
            dim, (at, n, held) = self._dim(table), self._keys(table, keys)
            values, kept = None, None
            if gradients is not None:
                with self._naming(table, "gradients"):
                    values, kept = _library.address(gradients, n * dim)
            h.check(h.lib.weir_push_rows(h.pointer, table, at, n, values, samples))
            del held, kept

    @contextlib.contextmanager
    def _call(self, table: int, timeout: Optional[float] = None) -> Iterator[Any]:
        """Waits for the calls of other threads for this table. The library's own lock is free
        between two turns of a lookup, in which a push would change the version that it reads."""
        with self._at:
            self._dim(table)
        lock = self._locks[table]
        if not lock.acquire(timeout=-1 if timeout is None else max(0, min(
                timeout, threading.TIMEOUT_MAX))):
            raise self._late(table, timeout)
        try:
            with self._at as h:
                yield h
        finally:
            lock.release()

    def _late(self, table: int, timeout: Optional[float]) -> _library.Error:
        return _library.error(AGAIN, "table %d: no rows within %g s" % (table, timeout or 0))

    @contextlib.contextmanager
    def _naming(self, table: int, what: str) -> Iterator[None]:
        """Adds the table, and what the call passed, to the error of a wrong array."""
        try:
            yield
        except Invalid as e:
            raise Invalid("table '%s': %s: %s" % (self._names[table], what, e)) from None

    def _keys(self, table: int, keys: Any) -> tuple[Optional[int], int, Any]:
        with self._naming(table, "keys"):
            return (None, 0, None) if keys is None else _library.elements(keys, _library.KEYS)
