"""libweir.so.0 through ctypes: finds and loads it, declares weir.h and weir_tables.h, and passes
memory."""
from __future__ import annotations

import atexit
import ctypes
import ctypes.util
import dataclasses
import difflib
import os
import platform
import re
import shutil
import sys
from ctypes import (POINTER, byref, c_char_p, c_double, c_float, c_int, c_int64, c_uint64,
                    c_void_p)
from typing import Any, Callable, Optional, Sequence

from ._loading import advice

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "libweir.so.0"
OK, DONE, LEFT, AGAIN, REBASED, OVER = range(6)


class Error(Exception):
    """A call of the library failed. The text is the library's message, `code` the value in
    weir.h."""
    code = -9


class Invalid(Error, ValueError):
    """An argument or a setting is wrong, or a call was made at the wrong time."""


class Refused(Error):
    """The servers have another job. The text names the first difference."""


class Unavailable(Error):
    """The servers lost the parameters, or a host cannot be reached."""


class Cancelled(Error):
    """cancel() was called."""


class Unsupported(Error):
    """This build of the library does not support the request."""


class Timeout(Error, TimeoutError):
    """The timeout passed; call again."""


KINDS = {-1: Invalid, -2: Refused, -3: Unavailable, -4: Cancelled, -6: Unsupported, AGAIN: Timeout}


def error(code: int, text: str) -> Error:
    """Returns the exception for a code, without raising it."""
    made = KINDS.get(code, Error)(text)
    made.code = code
    return made


class StepStruct(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in (
        "step", "train_steps", "position", "n_samples", "stride", "generation", "member", "rank",
        "n_members", "began", "n_regions")] + [("reserved", c_int64 * 5)]


class EventStruct(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in ("kind", "step", "generation", "param", "code")] + [
        ("reserved", c_int64 * 3)]


LINE = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
FIRST = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)
# Functions of weir.h and weir_tables.h: result and arguments.
FUNCTIONS = {
    "weir_version": (c_char_p,),
    "weir_code_text": (c_char_p, c_int),
    "weir_open": (c_int, POINTER(c_void_p)),
    "weir_close": (None, c_void_p),
    "weir_goodbye": (c_int, c_void_p),
    "weir_error": (c_char_p, c_void_p),
    "weir_log": (None, c_void_p, c_void_p),
    "weir_set": (c_int, c_void_p, c_char_p, c_char_p),
    "weir_param": (c_int, c_void_p, c_char_p, c_int, c_int, POINTER(c_int64), c_void_p),
    "weir_param_average": (c_int, c_void_p, c_int, c_double),
    "weir_param_factors": (c_int, c_void_p, c_int, c_double, c_double),
    "weir_param_first_values": (c_int, c_void_p, c_int, FIRST, c_void_p),
    "weir_step_rate": (c_int, c_void_p, c_double),
    "weir_next": (c_int, c_void_p, c_int, POINTER(StepStruct)),
    "weir_next_early": (c_int, c_void_p, c_int, POINTER(StepStruct)),
    "weir_sample": (c_int64, c_void_p, c_int64, c_int64),
    "weir_values": (c_void_p, c_void_p, c_int),
    "weir_gradient": (c_void_p, c_void_p, c_int),
    "weir_push": (c_int, c_void_p, c_int, c_void_p, c_double),
    "weir_push_values": (c_int, c_void_p, c_int, c_void_p, c_double),
    "weir_pull": (c_int, c_void_p, c_int),
    "weir_wait": (c_int, c_void_p, c_int, c_int),
    "weir_leave_soon": (c_int, c_void_p, c_int),
    "weir_stop_job": (c_int, c_void_p, c_int),
    "weir_leave_failed": (c_int, c_void_p, c_char_p),
    "weir_cancel": (None, c_void_p),
    "weir_fd": (c_int, c_void_p),
    "weir_next_event": (c_int, c_void_p, POINTER(EventStruct)),
    "weir_table": (c_int, c_void_p, c_char_p, c_int, c_int64),
    "weir_table_set": (c_int, c_void_p, c_int, c_char_p, c_char_p),
    "weir_lookup": (c_int, c_void_p, c_int, c_void_p, c_int64, c_void_p, c_int),
    "weir_next_keys": (c_int, c_void_p, c_int, c_void_p, c_int64),
    "weir_push_rows": (c_int, c_void_p, c_int, c_void_p, c_int64, c_void_p, c_double),
    "weir_key": (c_uint64, c_char_p, c_int64),
    "weir_gpu_reserve": (c_int, c_char_p, c_double, c_char_p, POINTER(c_void_p), c_char_p, c_int),
    "weir_gpu_release": (None, c_void_p),
}
_loaded: Any = None
_line: Any = None
_dropped = False  # whether log(None) drops all lines


def place() -> str:
    """Returns the path of the library. The places are tried in this order: WEIR_LIBRARY, the folder
    beside this package (in a wheel), the system's loader, and the installation whose programs are
    in PATH."""
    carried = os.path.join(HERE, "installed/lib", NAME)
    return os.environ.get("WEIR_LIBRARY") or (carried if os.path.exists(carried) else NAME)


def _beside_programs() -> Optional[str]:
    """Returns the library of the cmake installation whose programs are in PATH."""
    for name in "weir-ps", "weir-worker", "weirctl":
        found = shutil.which(name)
        prefix = os.path.join(os.path.dirname(os.path.realpath(found)), "..") if found else ""
        for folder in "lib", "lib/%s-linux-gnu" % platform.machine(), "lib64":
            path = os.path.normpath(os.path.join(prefix, folder, NAME))
            if found and os.path.exists(path):
                return path
    return None


def _load() -> Any:
    try:
        return ctypes.CDLL(place())
    except OSError as e:
        beside = _beside_programs() if str(e).startswith(NAME) and place() == NAME else None
        if beside is None:
            raise
    return ctypes.CDLL(beside)


def library() -> Any:
    """Returns the library, which is loaded once."""
    global _loaded
    if _loaded is not None:
        return _loaded
    named = ", which WEIR_LIBRARY names," if os.environ.get("WEIR_LIBRARY") else ""
    try:
        found = _load()
        for name, (result, *arguments) in FUNCTIONS.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except OSError as e:
        raise ImportError("weir: %s%s cannot be loaded: %s" % (NAME, named, advice(
            str(e), "install Weir, or set WEIR_LIBRARY to the library's path"))) from None
    except AttributeError as e:
        raise ImportError("weir: this library is of an older Weir than the package: %s; install "
                          "both from the same" % e) from None
    _loaded = found
    return found


def unknown_setting(name: str, own: Sequence[str]) -> str:
    """Returns a message about an unknown flag, which names the most similar setting or flag."""
    near = difflib.get_close_matches(name, own, 1, 0.8)
    made = c_void_p()
    meant = None
    if not near and library().weir_open(byref(made)) == OK:
        library().weir_set(made, name.encode(), b"")
        meant = re.search("did you mean '(.*)'", library().weir_error(made).decode())
        library().weir_close(made)
    return "unknown flag --%s%s" % (name, "; did you mean --%s?" % (
        near[0] if near else meant.group(1)) if near or meant else "")


def version() -> str:
    """Returns the library's version, "0.1.0"."""
    return library().weir_version().decode()


def log(line: Optional[Callable[[int, str], None]]) -> None:
    """Sends the library's log lines to line(level, text), from any thread. level: 0 debug, 1 info,
    2 warning, 3 error. line=None drops all lines. A program that never calls log() receives
    warnings on stderr: one line after 3 s without a server, and then rarely another one.

    `line` must not call methods of a member, which raise Invalid there. If it calls close(), the
    member is closed at the next call of the package outside of `line`."""
    global _line, _dropped
    call, _dropped = None, line is None
    if line is not None:
        call = LINE(lambda _ctx, level, text: line(level, text.decode("utf-8", "replace")))
    library().weir_log(ctypes.cast(call, c_void_p) if call else None, None)
    _line = call  # the previous function is no longer called


def note(text: str) -> None:
    """Prints a line about a member to stderr, or sends it to the function of log()."""
    if _line is not None:
        _line(None, 1, text.encode())
    elif not _dropped:
        print("weir: " + text, file=sys.stderr, flush=True)


@atexit.register
def _no_more_lines() -> None:
    if _line is not None:
        log(None)


class _Buffer(ctypes.Structure):
    """Py_buffer of Python's C API."""
    _fields_ = [("buf", c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", c_int), ("ndim", c_int),
                ("format", c_char_p), ("shape", c_void_p), ("strides", c_void_p),
                ("suboffsets", c_void_p), ("internal", c_void_p)]


class _Tensor(ctypes.Structure):
    """DLTensor, the first field of DLPack's DLManagedTensor."""
    _fields_ = [("data", c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", ctypes.c_uint64)]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type of elements, by the codes of the buffer protocol and of DLPack."""
    name: str
    formats: str
    codes: tuple[int, ...]
    bits: int


FLOATS = Kind("float32", "f", (2,), 32)
KEYS = Kind("int64 or uint64", "lqLQ", (0, 1), 64)


def _of_dlpack(source: Any, kind: Kind) -> tuple[int, int, Any]:
    try:
        capsule = source.__dlpack__()
    except (BufferError, RuntimeError, TypeError) as e:  # it is sparse, or requires a gradient
        raise Invalid("this %s cannot be read: %s" % (type(source).__name__, e)) from None
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, [ctypes.py_object, c_char_p]
    t = _Tensor.from_address(get(capsule, b"dltensor"))
    if t.device_type not in (1, 3):  # the CPU's memory, or pinned for CUDA
        raise Invalid("a tensor on the CPU is needed; copy this one there first")
    if t.code not in kind.codes or (t.bits, t.lanes) != (kind.bits, 1):
        raise Invalid("%s is needed; this tensor has another type" % kind.name)
    total, is_empty = 1, 0 in t.shape[:t.ndim]
    for i in reversed(range(t.ndim)):
        if t.strides and not is_empty and t.shape[i] != 1 and t.strides[i] != total:
            raise Invalid("the tensor's elements are not row-major side by side; make it "
                          "contiguous")
        total *= t.shape[i]
    return (t.data or 0) + t.byte_offset, total, capsule


def elements(source: Any, kind: Kind) -> tuple[int, int, Any]:
    """Returns the address of the elements of `source`, their number, and an object that keeps their
    memory alive. source: an object with the buffer protocol (numpy arrays, array.array, memoryview)
    or with DLPack (PyTorch tensors). Raises Invalid unless `source` has row-major elements of this
    kind in the CPU's memory."""
    if hasattr(source, "__dlpack__") and not hasattr(source, "__array_interface__"):
        return _of_dlpack(source, kind)
    try:
        view = memoryview(source)
    except TypeError:
        raise Invalid("an array of %s is needed (buffer protocol or DLPack), not %s" %
                      (kind.name, type(source).__name__)) from None
    is_kind = view.format.lstrip("<@=") in tuple(kind.formats) and 8 * view.itemsize == kind.bits
    if not is_kind or not view.c_contiguous:
        raise Invalid("%s, row-major and side by side, is needed; this buffer has the format %r" %
                      (kind.name, view.format))
    buffer = _Buffer()
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, c_void_p, c_int]
    get(view, byref(buffer), 0)
    at = buffer.buf
    release = ctypes.pythonapi.PyBuffer_Release
    release.argtypes = [c_void_p]
    release(byref(buffer))
    return at, 8 * view.nbytes // kind.bits, view  # the view holds the buffer


def address(source: Any, n: int) -> tuple[int, Any]:
    """Returns the address of the n float32 values of `source`, and an object that keeps their
    memory alive; see elements()."""
    at, found, held = elements(source, FLOATS)
    if found != n:
        raise Invalid("%d elements are needed; the %s has %d" % (
            n, "buffer" if isinstance(held, memoryview) else "tensor", found))
    return at, held


def first_values(make: Callable[[], Any], n: int, errors: list[BaseException]) -> Any:
    """Returns the library's function that writes the n values that make() returns. An exception of
    make() is appended to `errors`, and the handle stops."""
    def write(_ctx: Any, _param: int, to: int) -> int:
        try:
            at, held = address(make(), n)
            ctypes.memmove(to, at, 4 * n)
            del held
            return 0
        except BaseException as e:  # no exception passes through C
            errors.append(e)
            return 1
    return FIRST(write)


def view(at: int, shape: Sequence[int], keep: Any) -> memoryview:
    """Returns a view of float32 values of this shape at an address. The view keeps `keep` alive."""
    n = 1
    for d in shape:
        n *= d
    array = (c_float * n).from_address(at)
    array.keep = keep
    # memoryview casts only bytes to a shape.
    flat = memoryview(array).cast("B")
    return flat.cast("f", list(shape)) if shape else flat.cast("f")
