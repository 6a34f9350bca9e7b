"""Records the times of computing, sending and waiting of an exchange (weir.torch), and writes them
as Chrome trace JSON (docs/guide/tracing.md)."""
from __future__ import annotations

import atexit
import collections
import json
import os
import select
import socket
import threading
import time
import weakref
from typing import Any, Callable, Optional

from ._library import Error
from .member import Member

KEPT = 65535  # number of spans that are kept, the newest ones


def _tensors(found: Any) -> list[Any]:
    """Yields the tensors of a module's output."""
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, (list, tuple)):
        return [t for part in found for t in _tensors(part)]
    return [found] if getattr(found, "requires_grad", False) else []


class Trace:
    """The spans of one member, in memory until write(). A thread polls the member's events, so that
    the trace has the time at which an answer arrived, also if the program waits for it later."""

    def __init__(self, path: str) -> None:
        with open(path, "w", encoding="utf-8"):  # a wrong path is an error at the start already
            pass
        self.path, self.spans = path, collections.deque(maxlen=KEPT)
        self.n, self.step, self._over, self._lock = 0, -1, threading.Event(), threading.Lock()
        self.task = -1  # number of the member
        self.names: list[str] = []  # names of the parameters
        # Pushes without an answer: number of the parameter: (step, time of the push).
        self.pushed: dict[int, tuple[int, int]] = {}
        self._backward = 0  # time at which backward began; 0: it is not running
        # Times at which computing the next gradient began, and at which the last gradient was done.
        self._last = self._end = 0
        self._thread: Optional[threading.Thread] = None
        atexit.register(self.write)

    now = staticmethod(time.monotonic_ns)

    def add(self, category: str, name: str, begin: int, number: int = -1,
            step: Optional[int] = None) -> int:
        """Adds a span that ends now, and returns its end. A span with a number may overlap
        others."""
        with self._lock:
            self.n, end = self.n + 1, self.now()
            self.spans.append((begin, end, category, name, number,
                               self.step if step is None else step))
        return end

    def listen(self, member: Member, names: list[str]) -> None:
        """Starts the thread that polls the member's events. Must be called before the member's
        first step. The trace holds only a weak reference to the member, which may end before it."""
        self.names = names
        poll = select.poll()
        poll.register(member.fileno(), select.POLLIN)
        self._thread = threading.Thread(target=self._events, args=(poll, weakref.ref(member)),
                                        daemon=True)
        self._thread.start()

    def _events(self, poll: Any, member: Any) -> None:
        more = True
        while more and not self._over.is_set():
            poll.poll(100)
            more = self._take(member())

    def _take(self, member: Optional[Member]) -> bool:
        """Handles all events that have arrived. Returns False if no more events can arrive."""
        try:
            for event in iter(member.next_event, None) if member else ():
                if event.kind == "ready":
                    # The values of event.step answer the push of the step before.
                    self.answered(event.param, event.step - 1)
        except Error:
            return False
        return member is not None

    def answered(self, number: int, step: Optional[int] = None) -> None:
        """Records that the answer to a parameter's push has arrived. step: the push of that step;
        None: the last push. The polling thread and the waiting thread call this for each answer,
        and the first call counts."""
        with self._lock:
            found = self.pushed.get(number)
            if found is None or step not in (None, found[0]):
                return
            del self.pushed[number]
        self.add("exchange", "request " + self.names[number], found[1], number, found[0])

    def hooks(self, model: Any, deep: bool, wrap: Callable[[Any], Any]) -> list[Any]:
        """Adds hooks that record the forward of the model and the begin of backward; returns them.
        deep: hooks also record the forward of each module that has parameters. wrap: makes a hook
        that copies of the model do not get."""
        begun: dict[str, int] = {}

        def before(name: str) -> None:
            begun[name] = self.now()

        def after(name: str) -> None:
            self.add("compute", ("forward " + name).strip(), begun.pop(name, self.now()))

        def whole(out: Any) -> None:
            for t in _tensors(out):
                t.register_hook(lambda _g: self._begin_backward())
        made = [model.register_forward_hook(wrap(lambda _m, _x, out: whole(out)))]
        for name, module in model.named_modules():
            if not name or deep and any(True for _ in module.parameters(recurse=False)):
                made.append(module.register_forward_pre_hook(
                    wrap(lambda _m, _x, n=name: before(n))))
                made.append(module.register_forward_hook(
                    wrap(lambda _m, _x, _o, n=name: after(n))))
        return made

    def _begin_backward(self) -> None:
        if not self._backward:
            self._backward = self._last = self._end = self.now()

    def gradient(self, number: int) -> None:
        """Records that backward has computed the parameter's gradient."""
        self._begin_backward()
        self._end = self.add("compute", "backward " + self.names[number], self._last)
        self._last = self._end

    def push(self, number: int) -> int:
        """Records that a push begins; returns the time."""
        now = self.now()
        with self._lock:
            self.pushed[number] = (self.step, now)
        return now

    def handed(self, number: int, begin: int) -> None:
        """Records that the push is queued."""
        self.add("push", "hand out " + self.names[number], begin)
        self._last = self.now()

    def begin(self, step: int) -> None:
        """Records that a step begins, or, with -1, that the last step has ended."""
        if self._backward:
            with self._lock:
                self.n += 1
                self.spans.append((self._backward, self._end, "compute", "backward", -1,
                                   self.step))
        self._backward, self.step = 0, step

    def write(self) -> None:
        """Writes the file, once."""
        if self._over.is_set():
            return
        self.begin(-1)
        self._over.set()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join()
        atexit.unregister(self.write)
        pid = os.getpid()
        head = {"ph": "M", "pid": pid, "tid": pid}
        process = "member:%d" % self.task
        events = [{**head, "name": "process_name", "args": {"name": process}}]
        for begin, end, category, name, number, step in sorted(
                self.spans, key=lambda s: (s[0], -s[1])):
            e = {"pid": pid, "tid": pid, "ts": begin / 1000, "cat": category, "name": name,
                 "args": {"step": step}}
            if number < 0:
                events.append({**e, "ph": "X", "dur": (end - begin) / 1000})
            else:
                e["id2"] = {"local": str(number)}
                events += [{**e, "ph": "b"}, {**e, "ph": "e", "ts": end / 1000}]
        other = {"process": process, "host": socket.gethostname(),
                 "clock": "CLOCK_MONOTONIC", "lost_events": self.n - len(self.spans),
                 "wall_minus_clock_ns": time.time_ns() - self.now(), "lost_threads": 0}
        with open(self.path, "w", encoding="utf-8") as f:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}, f)
