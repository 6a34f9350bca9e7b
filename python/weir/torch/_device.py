"""Copies gradients to the member's memory, and values from it to the parameters.

Tensors in host memory are copied at once. For tensors on a CUDA device there are two streams, one
for each direction, which copy while the device computes and the program continues:

- send() queues the copy of a gradient behind the device's work so far. A thread waits for the end
  of the copy and then pushes the gradient. One thread pushes all gradients, in the order of send().
- bring() queues the copy of values behind the last use of the parameter's old values. arrive() lets
  the program's stream wait for these copies; the program itself does not wait.

Memory: the member's arrays of values and of gradients, two blocks, are pinned once. A gradient
stays referenced until its copy has ended, so that PyTorch does not reuse its memory. A push waits
for the last copy of the parameter's values, because the library may overwrite values after the
push. An array for a gradient is free again when the values have arrived, which the exchange waits
for."""
from __future__ import annotations

import collections
import contextlib
import mmap
import threading
import weakref
from typing import Any, Callable, Iterable, Iterator, Optional

import torch

from .._library import Invalid, note

cuda: Any = torch.cuda  # all calls of CUDA use this name; tests assign a fake to it
PORTABLE = 1  # cudaHostRegisterPortable
Push = Callable[[], None]


class Host:
    """Makes each copy at once."""
    pinned_bytes = 0  # size of the member's memory that is pinned

    def send(self, s: Any, source: Optional[torch.Tensor], push: Push) -> None:
        """Copies a tensor to the slot's array, and calls push(), perhaps in another thread later.
        source None: copies nothing."""
        if source is not None:
            s.room.copy_(source)
        push()

    def bring(self, s: Any) -> None:
        """Copies the slot's values to its tensor. Operations see the new values after arrive()."""
        s.tensor.data.copy_(s.values)

    def use(self, s: Any) -> None:
        """Notes that operations which were called before may read the slot's tensor; bring() waits
        for them. send() includes it."""

    def arrive(self) -> None:
        """Makes all operations that are called later wait for the copies of bring()."""

    def settle(self) -> None:
        """Waits for the copies of bring(). Must be called before the member's next(), which may
        change all values if the servers start again."""

    def pushes(self) -> Iterator[Any]:
        """Waits for the pushes, and yields the slot of each, until all are made. Raises the first
        error of a push."""
        return iter(())

    def close(self) -> None:
        """Waits until all pushes and copies are made, and releases everything."""


class _Events:
    """Events of a slot on a device."""

    def __init__(self) -> None:
        self.used = cuda.Event()  # the last operation that reads the old values
        self.copied = cuda.Event(blocking=True)  # the gradient is in the member's array
        self.arrived = cuda.Event(blocking=True)  # the values are in the tensor


class Device(Host):
    """Copies between a CUDA device and the member's memory. All pushes keep their order, also those
    of slots whose tensors are in host memory."""

    def __init__(self, device: torch.device, slots: list[Any]) -> None:
        self.device = device
        with cuda.device(device):
            self._down, self._up = cuda.Stream(device), cuda.Stream(device)
        self._settled = cuda.Event(blocking=True)
        self._events = {s.number: _Events() for s in slots if s.tensor.device == device}
        pinned = _pin(device, slots)
        self.pinned_bytes = sum(size for _, size in pinned)
        self._pushes = _Pushes()
        threading.Thread(target=self._pushes.make, daemon=True).start()
        # The arrays are arguments, so that their memory exists until it is no longer pinned.
        arrays = [(s.values, s.room) for s in slots]
        self._end = weakref.finalize(self, _end, self._pushes, (self._down, self._up),
                                     cuda.cudart(), pinned, arrays)
        self._end.atexit = False

    def send(self, s: Any, source: Optional[torch.Tensor], push: Push) -> None:
        if cuda.is_current_stream_capturing():
            raise Invalid("a CUDA graph is being captured, and its replays would send no "
                          "gradients; call backward() and step() outside of torch.cuda.graph")
        events = self._events.get(s.number)
        if events is None:
            if source is not None:
                s.room.copy_(source)
        else:
            self.use(s)
            if source is not None:
                self._down.wait_event(events.used)
                with cuda.stream(self._down):
                    s.room.copy_(source, non_blocking=True)
                events.copied.record(self._down)
        self._pushes.add(s, events, source, push)

    def bring(self, s: Any) -> None:
        events = self._events.get(s.number)
        if events is None:
            super().bring(s)
            return
        to = s.tensor.data
        self._up.wait_event(events.used)
        with cuda.stream(self._up):
            if to.dtype == torch.float32 and to.is_contiguous():
                to.copy_(s.values, non_blocking=True)
            else:  # the device converts, since a conversion by the host would wait for the copy
                staged = torch.empty_like(to, dtype=torch.float32,
                                          memory_format=torch.contiguous_format)
                staged.copy_(s.values, non_blocking=True)
                to.copy_(staged)
        events.arrived.record(self._up)

    def use(self, s: Any) -> None:
        if s.number in self._events:
            self._events[s.number].used.record(cuda.current_stream(self.device))

    def arrive(self) -> None:
        cuda.current_stream(self.device).wait_stream(self._up)

    def settle(self) -> None:
        self._settled.record(self._up)
        self._settled.synchronize()

    def pushes(self) -> Iterator[Any]:
        return self._pushes.wait()

    def close(self) -> None:
        with contextlib.suppress(Exception):  # pushes() raises the errors of pushes
            collections.deque(self._pushes.wait(), 0)
        self._end()


class _Pushes:
    """The pushes of a device in their order, and the thread that makes them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the fields below
        # Each entry: slot, its events, gradient, function. None: the thread ends.
        self._items: collections.deque[Any] = collections.deque()
        self._made: collections.deque[Any] = collections.deque()  # slots, for wait()
        self._n_left = 0  # number of pushes that are not made yet
        self._failed: Optional[BaseException] = None  # after an error no more pushes are made

    def add(self, *item: Any) -> None:
        with self._changed:
            self._items.append(item)
            self._n_left += 1
            self._changed.notify_all()

    def end(self) -> None:
        """Ends the thread after the pushes."""
        with self._changed:
            self._items.append(None)
            self._changed.notify_all()

    def wait(self) -> Iterator[Any]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._made or self._failed or not self._n_left)
                if self._failed:
                    raise self._failed
                if not self._made:
                    return
                s = self._made.popleft()
            yield s

    def make(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items)
                item = self._items.popleft()
            if item is None:
                return
            s, failed = item[0], self._failed
            try:
                if not failed:
                    self._make(*item[1:])
            except BaseException as e:  # pylint: disable=broad-except
                failed = e
            item = None  # PyTorch may reuse the gradient's memory from now on
            with self._changed:
                self._failed, self._n_left = failed, self._n_left - 1
                self._made.append(s)
                self._changed.notify_all()

    @staticmethod
    def _make(events: Optional[_Events], source: Optional[torch.Tensor], push: Push) -> None:
        if events is not None:
            events.arrived.synchronize()
            if source is not None:
                events.copied.synchronize()
        push()


def _pin(device: torch.device, slots: list[Any]) -> list[tuple[int, int]]:
    """Pins the member's values and gradients. Returns (address, bytes) of each pinned block."""
    pinned = []
    for what, arrays in (("values", [s.values for s in slots]),
                         ("gradients", [s.room for s in slots])):
        first = min(a.data_ptr() for a in arrays) // mmap.PAGESIZE * mmap.PAGESIZE
        end = max(a.data_ptr() + 4 * a.numel() for a in arrays)
        size = -(-(end - first) // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            with cuda.device(device):
                cuda.check_error(cuda.cudart().cudaHostRegister(first, size, PORTABLE))
            pinned.append((first, size))
        except RuntimeError as e:
            note("%d bytes of %s cannot be pinned (%s), so each copy between them and the GPU "
                 "blocks the program" % (size, what, e))
            # CUDA reports the failed call again, to the next kernel that starts.
            tensor = next(s.tensor for s in slots if s.tensor.device == device).detach()
            with contextlib.suppress(RuntimeError):
                tensor[(slice(1),) * tensor.dim()].neg()
    return pinned


def _end(pushes: _Pushes, streams: Iterable[Any], runtime: Any, pinned: list[tuple[int, int]],
         _arrays: Any) -> None:
    pushes.end()
    for stream in streams:
        stream.synchronize()
    for first, _ in pinned:
        runtime.cudaHostUnregister(first)


def device_of(model: torch.nn.Module, tensors: Iterable[torch.Tensor]) -> Optional[torch.device]:
    """Returns the CUDA device of these tensors; None: they are in other memory. Raises Invalid if
    they, or the copies of a DataParallel, are on several devices."""
    devices = {t.device for t in tensors if t.device.type == "cuda"}
    for module in model.modules():
        if isinstance(module, torch.nn.DataParallel):
            devices |= {torch.device("cuda", i) for i in module.device_ids}
    if len(devices) > 1:
        raise Invalid("the model is on %s; an exchange trains on one device: start a process for "
                      "each device, each with a model of its own" %
                      " and ".join(sorted(map(str, devices))))
    return next(iter(devices), None)


def arithmetic(device: Optional[torch.device]) -> str:
    """Returns a text that names the card, or the CPU's vector units and its threads. It should
    be the same for all members of a job."""
    if device is not None:
        return str(cuda.get_device_name(device))
    return "%s, %d threads" % (torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())
