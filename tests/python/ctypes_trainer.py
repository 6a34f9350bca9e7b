#!/usr/bin/python3
"""A training loop over libweir by ctypes alone, for test_libweir.py. Each sample stands for a
number, and two parameters approach the mean of these numbers.

    ctypes_trainer.py LIBRARY PAUSE_MS WIDTH NAME=VALUE...

It prints a line for each step, and leaves on SIGTERM. If own_local_steps is set, it makes
local steps by plain SGD."""
import ctypes
import hashlib
import signal
import sys
import time

OK, DONE, LEFT, OVER = 0, 1, 2, 5
FLOATS = ctypes.POINTER(ctypes.c_float)


class Step(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int64) for n in (
        "step", "train_steps", "position", "n_samples", "stride", "generation", "member", "rank",
        "n_members", "began", "n_regions")] + [("reserved", ctypes.c_int64 * 5)]


def load(path):
    lib = ctypes.CDLL(path)
    for name in ("weir_values", "weir_gradient"):
        getattr(lib, name).restype = FLOATS
    lib.weir_error.restype = ctypes.c_char_p
    lib.weir_sample.restype = ctypes.c_int64
    lib.weir_push.argtypes = lib.weir_push_values.argtypes = [
        ctypes.c_void_p, ctypes.c_int, FLOATS, ctypes.c_double]
    lib.weir_sample.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    return lib


class Trainer:
    def __init__(self, path, width, settings):
        self.lib, self.w = load(path), ctypes.c_void_p()
        self.check(self.lib.weir_open(ctypes.byref(self.w)))
        for setting in settings:
            name, value = setting.split("=")
            self.check(self.lib.weir_set(self.w, name.encode(), value.encode()))
        self.own = "own_local_steps=true" in settings
        self.params = []
        for name, n in (("wide", width), ("few", 3)):
            dims = (ctypes.c_int64 * 1)(n)
            first = (ctypes.c_float * n)(*[i % 5 for i in range(n)])
            self.params.append((self.check(self.lib.weir_param(
                self.w, name.encode(), 0, 1, dims, first)), n))

    def check(self, code):
        if code < 0:
            sys.exit("error %d: %s" % (code, self.lib.weir_error(self.w).decode()))
        return code

    def target(self, s):
        items = [self.lib.weir_sample(self.w, 1000, s.position + k * s.stride)
                 for k in range(s.n_samples)]
        return sum(items) / len(items) / 1000

    def take(self, s):
        target = self.target(s)
        for param, n in self.params:
            values, to = (f(self.w, param) for f in (self.lib.weir_values, self.lib.weir_gradient))
            if self.own:
                now = (ctypes.c_float * n)(*[v - 0.1 * (v - target) for v in values[:n]])
                self.check(self.lib.weir_push_values(self.w, param, now, s.n_samples))
                continue
            for i in range(n):
                to[i] = values[i] - target
            self.check(self.lib.weir_push(self.w, param, to, s.n_samples))

    def run(self, pause_s):
        s, leaves = Step(), []
        signal.signal(signal.SIGTERM, lambda *_: leaves.append(1))
        while self.check(code := self.lib.weir_next(self.w, -1, ctypes.byref(s))) == OK:
            print("step %d of %d position %d n %d generation %d members %d" % (
                s.step, s.train_steps, s.position, s.n_samples, s.generation, s.n_members),
                  flush=True)
            self.take(s)
            if leaves and leaves.pop():
                self.check(self.lib.weir_leave_soon(self.w, 20000))
            time.sleep(pause_s)
        if code == OVER:
            print("over", flush=True)
            return
        sha = hashlib.sha256()
        for param, n in self.params:
            sha.update(ctypes.string_at(self.lib.weir_values(self.w, param), 4 * n))
        print("left" if code == LEFT else "done %s" % sha.hexdigest(), flush=True)
        self.lib.weir_close(self.w)


if __name__ == "__main__":
    Trainer(sys.argv[1], int(sys.argv[3]), sys.argv[4:]).run(float(sys.argv[2]) / 1000)
