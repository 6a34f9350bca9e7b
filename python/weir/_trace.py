"""Records what an exchange of weir.torch did when, as Chrome trace JSON
(docs/guide/tracing.md)."""
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
from typing import Any, Optional

from ._library import Error
from .member import Member

KEPT = 65535  # number of the newest spans that are kept


def _tensors(found: Any) -> list[Any]:
    """Yields the tensors of a module's output."""
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, (list, tuple)):
        return [t for part in found for t in _tensors(part)]
    return [found] if getattr(found, "requires_grad", False) else []


class Trace:
    """Spans of one member, in memory until write(). A thread polls the member's events, so that an
    answer has its true time even if no thread waits for it."""

    def __init__(self, path: str) -> None:
        with open(path, "w", encoding="utf-8"):  # an error is better now than at the end
            pass
        self.path, self.spans = path, collections.deque(maxlen=KEPT)
        self.n, self.step, self._over, self._lock = 0, -1, threading.Event(), threading.Lock()
        self.task = -1  # number of the member
        self.names: list[str] = []  # names of the parameters
        self.pushed: dict[int, tuple[int, int]] = {}  # parameter: step, when; not answered
        self._backward = 0  # begin of the backward; 0: none is running
        self._last = self._end = 0  # begin of the next gradient; end of the last one
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
        """Before the member's first step. It is not kept by this, which stays to the end."""
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
        """All events there are; False: there will be no more."""
        try:
            for event in iter(member.next_event, None) if member else ():
                if event.kind == "ready":
                    self.answered(event.param, event.step - 1)  # event.step is the values' step
        except Error:
            return False
        return member is not None

    def answered(self, number: int, step: Optional[int] = None) -> None:
        """Notes that the values that answer the last push, or the push of that step, are here. Both
        the polling thread and the waiting thread call it; the first call counts."""
        with self._lock:
            found = self.pushed.get(number)
            if found is None or step not in (None, found[0]):
                return
            del self.pushed[number]
        self.add("exchange", "request " + self.names[number], found[1], number, found[0])

    def hooks(self, model: Any, deep: bool) -> list[Any]:
        """Forward, if deep of each module that has parameters, and where backward begins."""
        begun: dict[str, int] = {}

        def before(name: str) -> None:
            begun[name] = self.now()

        def after(name: str) -> None:
            self.add("compute", ("forward " + name).strip(), begun.pop(name, self.now()))

        def whole(out: Any) -> None:
            for t in _tensors(out):
                t.register_hook(lambda _g: self._begin_backward())
        made = [model.register_forward_hook(lambda _m, _x, out: whole(out))]
        for name, module in model.named_modules():
            if not name or deep and any(True for _ in module.parameters(recurse=False)):
                made.append(module.register_forward_pre_hook(lambda _m, _x, n=name: before(n)))
                made.append(module.register_forward_hook(lambda _m, _x, _o, n=name: after(n)))
        return made

    def _begin_backward(self) -> None:
        if not self._backward:
            self._backward = self._last = self._end = self.now()

    def gradient(self, number: int) -> None:
        """Notes that the parameter's gradient is here."""
        self._begin_backward()
        self._end = self.add("compute", "backward " + self.names[number], self._last)
        self._last = self._end

    def push(self, number: int) -> int:
        """Notes that the push begins, and returns the time."""
        now = self.now()
        with self._lock:
            self.pushed[number] = (self.step, now)
        return now

    def handed(self, number: int, begin: int) -> None:
        """Notes that the push is queued."""
        self.add("push", "hand out " + self.names[number], begin)
        self._last = self.now()

    def begin(self, step: int) -> None:
        """Notes that a step begins; -1: the last one is over."""
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
