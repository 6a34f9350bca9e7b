"""A fake of the calls of torch.cuda that weir.torch makes, whose device works as late as a real one
may. Its tensors claim to be on "cuda:0". Each stream is a queue of operations: aten's operations,
copies, and waits for events. The operations run on CPU tensors, but only when a scheduler chooses
them, in a random order that a seed determines and that respects streams and events. Until then
their results are NaN. So a missing wait leads to wrong values.

- A copy between the device and pinned memory runs as late as the other operations. A copy to or
  from other host memory runs at once.
- Memory of a tensor that the program has released becomes NaN, in the order of the stream that
  allocated it, since PyTorch would reuse it there.
- After a failed call the next operation reports the error again."""
import collections
import contextlib
import random
import threading
import weakref

import torch

DEVICE = torch.device("cuda", 0)
aten = torch.ops.aten
AT_ONCE = (aten._local_scalar_dense.default, aten.equal.default)  # their results are on the host
LIMIT = 4  # most operations that run when one is queued


class Memory:
    """A block of the device's memory, for as long as the program has a tensor in it."""

    def __init__(self, cuda, inner):
        self.bytes = torch.empty(0, dtype=torch.uint8).set_(inner.untyped_storage())
        weakref.finalize(self, cuda.released.append, (self.bytes, cuda.current_stream()))


class Late(torch.Tensor):
    """A tensor on the fake device. C++ sees a tensor on "meta", which autograd accepts without a
    device. inner: the values, in CPU memory."""

    @staticmethod
    def __new__(cls, cuda, inner, memory=None):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device="meta")
        made.cuda_, made.inner = cuda, inner
        made.memory = memory or Memory(cuda, inner)
        return made

    @property
    def device(self):
        return DEVICE

    def __repr__(self, **_):
        return "Late(%s)" % list(self.shape)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return next(t.cuda_ for t in tensors(args) if isinstance(t, Late)).call(func, args,
                                                                                kwargs or {})


def tensors(value):
    """Yields the tensors in arguments or results."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(part)


def each(change, value):
    """Returns arguments or results whose tensors are changed by a function."""
    if isinstance(value, torch.Tensor):
        return change(value)
    return type(value)(each(change, part) for part in value) if isinstance(
        value, (list, tuple)) else value


def inner(t):
    return t.inner if isinstance(t, Late) else t


class Stream:
    def __init__(self, cuda):
        self.cuda, self.n_done, self.n_queued = cuda, 0, 0
        self.queue = collections.deque()
        cuda.streams.append(self)

    def put(self, run, ready=lambda: True):
        self.cuda.put(self, run, ready)

    def wait_event(self, event):
        stream, n = event.at or (self, 0)
        self.put(lambda: None, lambda: stream.n_done >= n)

    def wait_stream(self, stream):
        event = Event()
        event.record(stream)
        self.wait_event(event)

    def synchronize(self):
        n = self.n_queued
        self.cuda.until(lambda: self.n_done >= n, self)


class Event:
    def __init__(self, blocking=False):
        self.at, self.blocking = None, blocking

    def record(self, stream):
        self.at = stream, stream.n_queued

    def synchronize(self):
        if self.at:
            assert self.blocking, "an event without blocking=True would keep a core busy"
            stream, n = self.at
            stream.cuda.until(lambda: stream.n_done >= n, stream)


class Runtime:
    """Stands for torch.cuda.cudart()."""

    def __init__(self, pinnable):
        self.pinnable, self.pinned, self.n_calls = pinnable, {}, 0

    def cudaHostRegister(self, first, size, flags):  # pylint: disable=invalid-name
        assert first % 4096 == size % 4096 == 0 and flags == 1, (first, size, flags)
        self.n_calls += 1
        if self.pinnable:
            assert first not in self.pinned
            self.pinned[first] = size
        return 0 if self.pinnable else 2

    def cudaHostUnregister(self, first):  # pylint: disable=invalid-name
        del self.pinned[first]
        return 0

    def holds(self, tensor):
        at, end = tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()
        return any(first <= at and end <= first + size for first, size in self.pinned.items())


class Cuda:
    """The fake module. seed: determines how late the operations run, and in which order."""
    Event = Event

    def __init__(self, seed, pinnable=True):
        self.seed, self.random = seed, random.Random(seed)
        # Some devices are slow: the scheduler runs nothing before the program waits for it, or even
        # only the stream for which the program waits, as long as that stream does not wait itself.
        self.eager, self.narrow = self.random.choice((0, 0, 0.1, 0.4)), self.random.random() < 0.5
        self.lock, self.local = threading.RLock(), threading.local()
        self.streams, self.released = [], collections.deque()
        self.main, self.runtime = Stream(self), Runtime(pinnable)
        self.error = self.capturing = False
        self.waits = []  # names of the threads that have waited for the device
        self.copies = []  # stream of each copy between host and device

    # The module's functions that weir.torch calls.

    def Stream(self, _device):  # pylint: disable=invalid-name
        return Stream(self)

    def current_stream(self, _device=None):
        return getattr(self.local, "stream", None) or self.main

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.local.stream = self.current_stream(), stream
        yield
        self.local.stream = before

    def device(self, _device):
        return contextlib.nullcontext()

    def cudart(self):
        return self.runtime

    def check_error(self, code):
        if code:
            self.error = True
            raise RuntimeError("out of memory")

    def is_current_stream_capturing(self):
        return self.capturing

    def get_device_name(self, _device):
        return "late device"

    # The device.

    def put(self, stream, run, ready=lambda: True):
        with self.lock:
            while self.released:
                self._put(self.released[0][1], lambda of=self.released[0][0]: of.fill_(255))
                self.released.popleft()
            self._put(stream, run, ready)
            for _ in range(LIMIT):
                if self.random.random() < self.eager:
                    self._run_one()

    @staticmethod
    def _put(stream, run, ready=lambda: True):
        stream.queue.append((run, ready))
        stream.n_queued += 1

    def _run_one(self, wanted=None):
        able = [s for s in self.streams if s.queue and s.queue[0][1]()]
        if able:
            stream = wanted if wanted in able and self.narrow else self.random.choice(able)
            with torch.no_grad():
                stream.queue.popleft()[0]()
            stream.n_done += 1
        return bool(able)

    def until(self, done, stream):
        """Runs operations until done(), which depends on a stream."""
        self.waits.append(threading.current_thread().name)
        with self.lock:
            while not done():
                assert self._run_one(stream), "the streams wait for each other"

    def synchronize(self):
        for stream in list(self.streams):
            stream.synchronize()

    def to(self, tensor):
        """Returns a tensor with the same values on the device."""
        return Late(self, tensor.detach().clone())

    def move(self, module):
        """Moves a module's parameters and buffers to the device, as module.to() does. Shared
        parameters stay shared."""
        made = {}
        for part in module.modules():
            for name, p in part.named_parameters(recurse=False):
                if p not in made:
                    made[p] = torch.nn.Parameter(self.to(p), requires_grad=p.requires_grad)
                part._parameters[name] = made[p]
            for name, b in part.named_buffers(recurse=False):
                part._buffers[name] = self.to(b)
        return module

    def call(self, func, args, kwargs):
        """Makes one of aten's operations on the device."""
        to_host = func is aten._to_copy.default and str(kwargs.get("device")) == "cpu"
        if func in AT_ONCE or to_host:
            self.current_stream().synchronize()
            return func(*each(inner, args), **kwargs)
        if func.is_view or func is aten.detach.default:
            memory = args[0].memory
            return each(lambda t: Late(self, t, memory), func(*each(inner, args), **kwargs))
        if func is aten.copy_.default and not all(isinstance(t, Late) for t in args[:2]):
            return self._copy(*args[:2], len(args) > 2 and args[2])
        return self._queue(func, args, {
            k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")})

    def _copy(self, to, source, later):
        host = source if isinstance(to, Late) else to
        self.copies.append(self.current_stream())
        stream, target, pinned = self.current_stream(), inner(to), self.runtime.holds(host)
        values = inner(source) if isinstance(source, Late) or pinned else source.clone()
        stream.put(lambda: target.copy_(values))
        if not later or not (pinned or host is source):
            stream.synchronize()
        return to

    def _queue(self, func, args, kwargs):
        if self.error:
            self.error = False
            raise RuntimeError("CUDA error: out of memory")
        assert not any(t.is_meta for t in tensors(args) if not isinstance(t, Late)), func

        def zeros(t):  # the sizes and types of results do not depend on values
            return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype).zero_()
        outs, made = [], []
        with torch.no_grad():
            found = func(*each(zeros, args), **kwargs)
        for i, (t, result) in enumerate(zip(tensors(found), func._schema.returns)):
            alias = result.alias_info
            if alias is not None and alias.is_write:
                outs.append(next(a for a, p in zip(args, func._schema.arguments) if p.alias_info
                                 and p.alias_info.before_set == alias.before_set))
            else:
                made.append((i, torch.empty_strided(t.size(), t.stride(), dtype=t.dtype)))
                outs.append(Late(self, made[-1][1]))
                outs[-1].memory.bytes.fill_(255)
        # A tensor of the host is an argument by its present value, like a kernel's.
        ready = each(lambda t: t.inner if isinstance(t, Late) else t.clone(), args)

        def run():
            results = list(tensors(func(*ready, **kwargs)))
            for i, of in made:
                of.copy_(results[i])
        if "empty" not in func.__name__:
            self.current_stream().put(run)
        return type(found)(outs) if isinstance(found, (list, tuple)) else outs[0]
