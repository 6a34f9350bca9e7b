"""A stand-in for weir.Member that does all that weir.h permits the library: it reads a
gradient only when the program waits for the answer, it destroys the values of a parameter at its
push, and it answers late. Each step is one of SGD, with the gradients of this member and of another
one, which are random numbers. So values change also if this member adds nothing."""
import mmap
import random
import threading

import torch

import weir

RATE = 0.1
N_SAMPLES = 4


class LateMember:
    """lost: steps that are cancelled once, after some of their values have arrived. restarts: steps
    before which the servers start again, with other values."""

    def __init__(self, seed, train_steps, lost=(), restarts=()):
        self.random, self.result, self.train_steps = random.Random(seed), None, train_steps
        self.lost, self.restarts = set(lost), set(restarts)
        self.lock, self.step, self.is_lost = threading.RLock(), -1, False
        self.truth, self.before = [], []  # values of all parameters, and those of the step before
        self.keep, self.memory, self.settings = [], {}, {}
        self.order = []  # (step, parameter) of each push
        self.pushed = set()  # parameters that were pushed in this step
        self.pending = {}  # parameters whose new values have not arrived: (array, samples)

    def set(self, name, value):
        self.settings[name] = value

    def param(self, name, shape, values, keep=None, **_):
        self.truth.append(values.clone().view(shape))
        self.keep.append(keep)
        return len(self.truth) - 1

    def _view(self, name, number, _write):
        """Returns an array in a block of whole pages, which all parameters share."""
        if name not in self.memory:
            self.memory[name] = memoryview(mmap.mmap(-1, 4 * sum(t.numel() for t in self.truth)))
        first = 4 * sum(t.numel() for t in self.truth[:number])
        return self.memory[name][first:first + 4 * self.truth[number].numel()]

    def _array(self, name, number):
        array = torch.frombuffer(self._view(name, number, True), dtype=torch.float32)
        return array.view(self.truth[number].shape)

    def next(self, early=False):
        with self.lock:
            began = self.step in self.lost and self.is_lost
            assert self.step < 0 or len(self.pushed) == len(self.truth) or began
            if began:
                self.lost.remove(self.step)
                self.pending.clear()
                self.truth = self.before
            elif not early or self.step + 1 in self.restarts | {0, self.train_steps}:
                for number in list(self.pending):
                    self._arrive(number)
            self.step += not began
            if self.step == self.train_steps:
                self.result = "done"
                return None
            if self.step in self.restarts:
                self.restarts.remove(self.step)
                self.truth, began = [t / 2 for t in self.truth], True
            self.is_lost, self.before = False, [t.clone() for t in self.truth]
            self.pushed.clear()
            for number, values in enumerate(self.truth if began or self.step == 0 else ()):
                self._array("weir_values", number).copy_(values)
            return weir.Step(self.step, self.train_steps, N_SAMPLES * self.step, N_SAMPLES, 1, 1, 0,
                             0, 1, began, 0)

    def samples(self, step, n):
        return [i % n for i in step.positions]

    def push(self, number, *gradient, samples):
        self._push(number, None if gradient else self._array("weir_gradient", number), samples)

    def push_values(self, number, values, samples):
        self._push(number, values, samples)

    def _push(self, number, array, samples):
        with self.lock:
            assert number not in self.pushed and number not in self.pending
            self.pushed.add(number)
            self.order.append((self.step, number))
            self.pending[number] = (array, samples)
            self._array("weir_values", number).fill_(float("nan"))

    def wait(self, number, timeout=None):
        with self.lock:
            pushed = number in self.pushed
            if pushed and not self.pushed >= {number ^ 1} & set(range(len(self.truth))):
                raise weir.Invalid("parameter %d is not pushed" % (number ^ 1))
            if pushed and timeout == 0 and self.random.random() < 0.5:
                raise weir.Timeout("not yet")
            self.is_lost |= pushed and self.step in self.lost and number == 2
            if not self.is_lost and number in self.pending:
                self._arrive(number)
            return not self.is_lost

    def _arrive(self, number):
        array, samples = self.pending.pop(number)
        before = self.truth[number]
        other = torch.randn(before.shape, generator=torch.Generator().manual_seed(
            1000 * self.step + number)).abs()
        if self.keep[number] is not None:
            new = other if samples == 0 else (array + other) / 2
        else:
            new = before - RATE * (other if samples == 0 or array is None else array + other)
        self.truth[number] = new
        self._array("weir_values", number).copy_(new)
        self._array("weir_gradient", number).fill_(float("nan"))

    def close(self):
        """Destroys all values, like memory that is used again."""
        for name, number in ((name, i) for name in self.memory for i in range(len(self.truth))):
            self._array(name, number).fill_(float("nan"))
