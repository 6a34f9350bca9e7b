"""GPUs of a machine that several users share: which there are, who holds them, and a reservation
for this process, by the locks that Weir's workers use. docs/guide/notebooks.md is the manual."""
from __future__ import annotations

import ctypes
import json
import math
import os
import subprocess
import sys
import time
import warnings
from typing import Any, Callable, Mapping, Optional, Sequence

from ._library import AGAIN, OK, Error, Invalid, Unavailable, error, library
from .cluster import program

VISIBLE = "CUDA_VISIBLE_DEVICES"
POLL = 0.5  # seconds between two attempts
AGAIN_AFTER = 1.5  # NVML reports the load of a process up to a second after its end
WHY_BYTES = 1024
_held: Optional["Reservation"] = None  # reservation of this process


class Devices(list):  # type: ignore[type-arg]
    """The devices of `weir-worker --list_devices=json`, each a dict (docs/guide/gpus.md has the
    fields). Its text is a table of the GPUs and of the processes that reserved them. why_no_gpu:
    the reason if there is no GPU, else ""."""

    def __init__(self, listed: Mapping[str, Any]) -> None:
        super().__init__(listed["devices"])
        self.why_no_gpu = listed["why_no_gpu"] or ""
        self.lock_dir = listed["lock_dir"]

    @property
    def gpus(self) -> list[dict[str, Any]]:
        return [d for d in self if d["device_type"] == "GPU"]

    def __repr__(self) -> str:
        lines = []
        for gpu in self.gpus:
            held = gpu["reservations"]
            state = "not free: " + (gpu["auto_refuses"] or "")
            if gpu["auto"]:
                state = "has room" if held else "free"
            elif held and "has reserved" in state:
                state = "not free"
            lines += [_label(gpu) + ": " + state] + ["  " + _holder(r) for r in held]
        return "\n".join(lines) or "no GPU: %s" % self.why_no_gpu


def _label(gpu: Mapping[str, Any]) -> str:
    return "GPU %s (%s, %s, %.0f GB)" % (gpu["name"].rpartition(":")[2], gpu["product"],
                                         gpu["uuid"], gpu["memory_bytes"] / 1e9)


def _holder(r: Mapping[str, Any]) -> str:
    part = r["memory_fraction"]
    return "%s of %s%s has reserved %s since %s" % (
        r["program"] or "a process", r["user"] or "an unknown user",
        " (process %d%s)" % (r["pid"], ", this one" if r["pid"] == os.getpid() else "")
        if r["pid"] else "", "%g of the memory" % part if part else "it", r["since"])


def _environment() -> dict[str, str]:
    """Returns this environment as it was before reserve() changed it."""
    env = dict(os.environ)
    if _held is not None:
        env.pop(VISIBLE, None)
        if _held._visible is not None:
            env[VISIBLE] = _held._visible
    return env


def devices(memory_fraction: float = 0, lock_dir: Optional[str] = None) -> Devices:
    """Returns the devices of this machine, with the processes that reserved them. A GPU has `auto`
    true if reserve() with this memory_fraction would choose it now. Its text is a table:

        print(weir.devices())

    lock_dir: --gpu_lock_dir of the workers, if it is not the default."""
    flags = ["--list_devices=json"] + (["--gpu_lock_dir=" + lock_dir] if lock_dir else [])
    if memory_fraction:
        flags += ["--gpu_memory_fraction=%g" % memory_fraction, "--gpu_allow_growth"]
    done = subprocess.run([program("weir-worker"), *flags], env=_environment(), text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise Error(lines[-1] if lines else "weir-worker: exit status %d" % done.returncode)
    return Devices(json.loads(done.stdout))


class Reservation:
    """A reservation of GPUs for this process until release() or its end, by whatever cause.

    gpus: the reserved GPUs, from devices(); empty: the process computes on the CPU.
    memory_fraction: share of the memory of each GPU that the process may use, 1.0 of a whole GPU.
    why: reason if fewer GPUs are reserved than requested, else ""."""

    def __init__(self, n: int, memory_fraction: float) -> None:
        self.n, self.memory_fraction = n, memory_fraction or 1.0
        self.gpus: list[dict[str, Any]] = []
        self.why = ""
        self._handles: list[ctypes.c_void_p] = []
        self._visible = os.environ.get(VISIBLE)

    @property
    def device(self) -> str:
        """The device for PyTorch: "cuda" if a GPU is reserved and PyTorch can use it, else "cpu".
        Raises Invalid if CUDA began in this process before reserve(), because PyTorch would then
        use GPUs that are not reserved."""
        torch = sys.modules.get("torch")
        if not self.gpus or (torch is not None and torch.version.cuda is None):
            return "cpu"
        if torch is not None and not torch.cuda.is_available():
            warnings.warn("PyTorch cannot use the reserved GPU (is the driver too old for it?)")
            return "cpu"
        if torch is not None and torch._C._cuda_getDeviceCount() != len(self.gpus):
            raise Invalid("this process used CUDA before weir.reserve(): PyTorch does not see the "
                          "reserved GPUs only; restart it (in a notebook: the kernel), and call "
                          "weir.reserve() first")
        return "cuda"

    def release(self) -> None:
        """Releases the GPUs. The process must not use them any more. A second call does nothing."""
        global _held
        self._close()
        if _held is self:
            _held = None
            _set_visible(self._visible)

    def _close(self) -> None:
        while self._handles:
            library().weir_gpu_release(self._handles.pop())

    def _claim(self, gpu: dict[str, Any], fraction: float, lock_dir: str) -> str:
        """Reserves the GPU. Returns "", or why it cannot be reserved."""
        why = ctypes.create_string_buffer(WHY_BYTES)
        made = ctypes.c_void_p()
        code = library().weir_gpu_reserve(gpu["uuid"].encode(), fraction, os.fsencode(lock_dir),
                                          ctypes.byref(made), why, len(why))
        said = why.value.decode("utf-8", "replace")
        if code not in (OK, AGAIN):
            raise error(code, "%s: %s" % (_label(gpu), said))
        if code == OK:
            self._handles.append(made)
            self.gpus.append(gpu)
        return said if code == AGAIN else ""

    def __repr__(self) -> str:
        part = "" if self.memory_fraction == 1 else "%g of the memory of " % self.memory_fraction
        lines = ["reserved: %s%s" % (part, _label(gpu)) for gpu in self.gpus]
        if not self.gpus:
            lines = ["no GPU is free, computing on the CPU: " + self.why]
        elif self.why:
            lines.append("no more GPUs are free: " + self.why)
        return "\n".join(lines)


def _set_visible(value: Optional[str]) -> None:
    os.environ.pop(VISIBLE, None)
    if value is not None:
        os.environ[VISIBLE] = value


def _forget() -> None:
    """Closes a forked child's copies of the locks. Otherwise the GPUs would stay reserved until the
    child ends, even after this process has released them or has ended."""
    if _held is not None:
        _held._close()


os.register_at_fork(after_in_child=_forget)


def _try(held: Reservation, fraction: float, lock_dir: Optional[str]) -> bool:
    """Reserves up to held.n free GPUs, unused ones first. Returns whether a GPU was refused only
    for a load that may have ended."""
    listed = devices(fraction, lock_dir)
    reasons, lags = [], False
    for gpu in sorted(listed.gpus, key=lambda d: len(d["reservations"])):
        if len(held.gpus) == held.n:
            break
        why = gpu["auto_refuses"] or held._claim(gpu, fraction, listed.lock_dir)
        if why:
            reasons.append("GPU %s: %s" % (gpu["name"].rpartition(":")[2], why))
            lags |= not gpu["reservations"] and gpu["n_processes"] == 0
    missing = len(held.gpus) < held.n
    held.why = "; ".join(reasons) if missing else ""
    if missing and not reasons:
        held.why = listed.why_no_gpu or "this machine has no more"
    return lags


def _check(n: int, memory_fraction: float, wait: float) -> None:
    if n < 1 or not 0 <= memory_fraction <= 1 or not 0 <= wait < math.inf:
        raise Invalid("reserve() needs n from 1, memory_fraction from 0 to 1 (0: the whole GPU), "
                      "and wait from 0 seconds")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise Invalid("this process uses CUDA already; restart it (in a notebook: the kernel), and "
                      "call weir.reserve() first")


def reserve(n: int = 1, memory_fraction: float = 0, wait: float = 0, required: bool = False,
            lock_dir: Optional[str] = None,
            report: Optional[Callable[[str], Any]] = print) -> Reservation:
    """Reserves up to n free GPUs for this process, until release() or the end of the process. Until
    then Weir's workers and other programs that call reserve() do not choose them. Call it before
    the first use of CUDA: it sets CUDA_VISIBLE_DEVICES to the reserved GPUs. If none is free, it
    sets the variable to "", and the process computes on the CPU.

        gpu = weir.reserve(memory_fraction=0.4, wait=600)
        model.to(gpu.device)

    memory_fraction: share of the memory of each GPU, beside other processes with a share; the
        program must keep to it. 0: the whole GPU.
    wait: seconds to wait for n free GPUs. Ctrl-C ends the wait.
    required: raises Unavailable if fewer than n are free.
    lock_dir: --gpu_lock_dir of the workers, if it is not the default.
    report: receives a line with the result, and during a wait a line for each change of the
        holders.

    A second call with the same n and memory_fraction returns the same reservation, if that has all
    GPUs; otherwise it first releases the earlier one."""
    global _held
    if _held is not None and (_held.n, _held.memory_fraction, len(_held.gpus)) == (
            n, memory_fraction or 1.0, n):
        return _held
    _check(n, memory_fraction, wait)
    if _held is not None:
        _held.release()
    deadline, said, looked_again = time.monotonic() + wait, "", wait >= AGAIN_AFTER
    while True:
        held = Reservation(n, memory_fraction)
        try:
            lags = _try(held, memory_fraction, lock_dir)
            left = deadline - time.monotonic()
            if len(held.gpus) == n or (left <= 0 and (looked_again or not lags)):
                break
        except BaseException:
            held._close()
            raise
        held._close()
        if left <= 0:
            looked_again = True
            time.sleep(AGAIN_AFTER)
            continue
        if report and held.why != said:
            said = held.why
            report("waiting for %d GPU%s, at most %.0f s: %s" % (n, "s"[:n - 1], left, said))
        time.sleep(min(POLL, left))
    if required and len(held.gpus) < n:
        held._close()
        raise Unavailable("no GPU is free: " + held.why)
    _held = held
    _set_visible(",".join(gpu["uuid"] for gpu in held.gpus))
    if report:
        report(repr(held))
    return held


__all__: Sequence[str] = ("Devices", "Reservation", "devices", "reserve")
