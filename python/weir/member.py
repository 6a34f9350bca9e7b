"""A member of a job: libweir's C API (weir.h) as a class."""
from __future__ import annotations

import atexit
import ctypes
import dataclasses
import math
import os
import time
import weakref
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

from . import _library
from ._library import AGAIN, DONE, LEFT, OK, OVER, REBASED, Invalid


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of the job, as weir.h's struct weir_step."""
    step: int  # from 0 on
    train_steps: int  # where the job ends
    position: int  # of the first sample of this member's batch,
    n_samples: int  # which has so many,
    stride: int  # each so far from the one before
    generation: int  # of the servers; 0: there are none
    member: int  # its number for life
    rank: int
    n_members: int
    began: bool  # values need not be those that the step before led to

    @property
    def positions(self) -> range:
        """Those of this member's samples, counted over all passes."""
        return range(self.position, self.position + self.n_samples * self.stride, self.stride)


@dataclasses.dataclass(frozen=True)
class Event:
    """What next_event() gives."""
    kind: str  # "began", "ready" (the values of `param`), "rebased", "stopped"
    step: int
    generation: int
    param: int
    code: int


TURN = 0.2  # seconds: so long Python's signal handlers wait while the library does
GOODBYE = 2.0  # seconds for the servers to hear that who was interrupted leaves
AT_EXIT = 5  # seconds for other threads' calls to end
ENDS = {DONE: "done", LEFT: "left", OVER: "over"}
KINDS = {1: "began", 2: "ready", 3: "rebased", 4: "stopped"}


def _ms(timeout: Optional[float]) -> int:
    return -1 if timeout is None else min(2**31 - 1, max(0, math.ceil(timeout * 1000)))


class _Handle:
    """The handle, and its memory, which is freed when nobody holds it: neither its Member, nor a
    call, nor a view. Calls are made within `with handle:`; none begins once it is `closed`, and
    then the last one says goodbye. No lock: a signal handler may close it, too."""

    def __init__(self) -> None:
        self.lib = _library.library()
        made = ctypes.c_void_p()
        code = self.lib.weir_open(ctypes.byref(made))
        if code != OK:
            raise _library.error(code, self.lib.weir_code_text(code).decode())
        self.pointer, self.closed = made, False
        self.calls: list[None] = []  # one for each
        self.goodbyes: list[None] = [None]  # that are to be said: one
        self.gone = False  # it was said: nobody is within the library any more
        self.lent: dict[int, list[Any]] = {}  # by parameter: what the library may still read
        _open.add(self)

    def __del__(self) -> None:
        made = getattr(self, "pointer", None)
        if made is not None and not _ended:  # at the end views may outlive their handle
            _free(self.lib, made)

    def __enter__(self) -> "_Handle":
        _work_off()
        self.calls.append(None)
        if self.closed:
            self.__exit__()
            raise Invalid("the member is closed")
        return self

    def __exit__(self, *_: Any) -> None:
        self.calls.pop()
        if self.closed:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Closed: once, when no call is under way any more; the memory stays."""
        while not self.calls:
            try:
                self.goodbyes.pop()
            except IndexError:
                return
            if not self.calls:  # what begins from now on finds it closed, and no cancel to make
                self.gone = self.lib.weir_goodbye(self.pointer) == OK
                if self.gone:
                    self.lent.clear()
                else:
                    self.goodbyes.append(None)
                    _late.append(self._say_goodbye)
                return
            self.goodbyes.append(None)

    def error(self, code: int) -> _library.Error:
        """The exception of the last call that failed."""
        return _library.error(code, self.lib.weir_error(self.pointer).decode("utf-8", "replace"))

    def check(self, code: int) -> int:
        """A code that is no error."""
        if code < 0:
            raise Invalid("the member is closed") if self.closed else self.error(code)
        return code

    def await_(self, call: Callable[[int], int], timeout: Optional[float]) -> int:
        """The code of call(milliseconds), in turns: Ctrl-C and signal handlers work meanwhile."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            code = self.check(call(_ms(min(TURN, left))))
            if code == AGAIN and self.closed:
                raise Invalid("the member is closed")
            if code != AGAIN or left <= TURN:
                return code

    def close(self, over: bool) -> None:
        """No more calls; those under way end soon. over: it has no more steps."""
        self.closed = True
        self.calls.append(None)  # a cancel is one, too: nobody says goodbye meanwhile
        try:
            if len(self.calls) > 1 and self.goodbyes and not over:
                self.lib.weir_cancel(self.pointer)
        finally:
            self.__exit__()


_open: "weakref.WeakSet[_Handle]" = weakref.WeakSet()
_late: list[Callable[[], None]] = []  # what was refused within the log's function
_ended = False  # the program does: memory stays, for views that are still read


def _free(lib: Any, made: ctypes.c_void_p) -> None:
    if lib.weir_goodbye(made) == OK:  # which says what weir_close does not: whether it may be
        lib.weir_close(made)
    else:
        _late.append(lambda: _free(lib, made))


def _work_off() -> None:
    """What was refused, again: each once, since it may be refused again."""
    for _ in range(len(_late)):
        try:
            _late.pop(0)()
        except IndexError:
            return  # another thread has


@atexit.register
def _close_all() -> None:
    """Not under the feet of a thread that is in a call: it is waited for, or left as it is."""
    global _ended
    _ended = True
    handles, deadline = list(_open), time.monotonic() + AT_EXIT
    _work_off()
    for h in handles:
        h.close(False)
    for h in handles:
        while not h.gone and time.monotonic() < deadline:
            time.sleep(0.01)


class Member:
    """One member of one job of Weir's servers; without `ps_hosts` it trains alone.

        with weir.Member(ps_hosts="a:2222", n_workers=2, task_index=0, batch_size=64) as member:
            W = member.param("weights", (10, 784))
            for step in member:
                ...                       # member.values(W), step.positions
                member.push(W, gradient, samples=step.n_samples)

    settings: those of docs/reference/weir-h.md, by name; numbers, strings, True. Left out, the
    cluster is that of torchrun's environment (then ps_hosts, or WEIR_PS_HOSTS, says where the
    servers are), of TF_CONFIG, or with slurm_ps of the Slurm step.
    Errors of all calls are weir.Error, with the library's sentence. From any thread, at
    once: push, push_values, wait, pull, values, gradient, leave_soon, cancel, next_event; all else
    from one at a time, but for close. No fork without exec while a member is open.
    """

    def __init__(self, **settings: Any) -> None:
        self._handle: Optional[_Handle] = _Handle()
        self._shapes: list[tuple[int, ...]] = []
        self.result: Optional[str] = None  # "done", "left", "over", once next() has given None
        for name, value in from_torchrun(settings).items():
            self.set(name, value)

    @property
    def _at(self) -> _Handle:
        handle = self._handle  # which another thread may take away
        if handle is None:
            raise Invalid("the member is closed")
        return handle

    def set(self, name: str, value: Any) -> None:
        """One setting, before the first step. None: as it is. Invalid: no such one, or not so."""
        with self._at as h:
            if value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                h.check(h.lib.weir_set(h.pointer, name.encode(), text.encode()))

    def param(self, name: str, shape: Sequence[int], values: Any = None,
              keep: Optional[float] = None) -> int:
        """One more parameter of this shape, 0 to 6 dimensions; its number. Before the first step;
        all members name the same in the same order.

        values: float32 of that shape, the first ones, copied; None: zeros. Those of the member that
        comes first count. keep: it is a statistic, not trained: so much of its old value (0 to 1)
        is kept in each step, the rest is the mean of what is pushed."""
        with self._at as h:
            n = math.prod(shape)
            at, held = (None, None) if values is None else _library.address(values, n)
            dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
            param = h.check(h.lib.weir_param(h.pointer, name.encode(), 0, len(shape), dims, at))
            del held
            if keep is not None:
                h.check(h.lib.weir_param_average(h.pointer, param, keep))
            self._shapes.append(tuple(shape))
            return param

    def next(self, timeout: Optional[float] = None, early: bool = False) -> Optional[Step]:
        """The next step, once its values are there; None: the job is done, has gone on without this
        member, or was over before it came (`result`). All parameters of the step before have been
        pushed. early: without waiting for values; wait() comes before a parameter is read. timeout:
        seconds, None: without end; Timeout: call again."""
        with self._at as h:
            out = _library.StepStruct()
            call = h.lib.weir_next_early if early else h.lib.weir_next
            code = h.await_(lambda ms: call(h.pointer, ms, ctypes.byref(out)), timeout)
            if code == AGAIN:
                raise _library.error(AGAIN, "no step within %g s" % (timeout or 0))
            if not early and code == OK:
                h.lent.clear()
            if code in ENDS:
                self.result = ENDS[code]
                return None
            got = [getattr(out, f.name) for f in dataclasses.fields(Step)]
            return Step(*got[:-1], bool(got[-1]))

    def __iter__(self) -> Iterator[Step]:
        """All steps, to the end."""
        while True:
            step = self.next()
            if step is None:
                return
            yield step

    def sample(self, n: int, position: int) -> int:
        """Which of n samples (1 to 2**26) lies at a position: each pass has all of them once,
        shuffled by the setting `seed` and the pass. Before the first step, too."""
        with self._at as h:
            found = h.lib.weir_sample(h.pointer, n, position)
            return h.check(found)

    def samples(self, step: Step, n: int) -> list[int]:
        """Those of n samples that this member reads in a step, [n_samples] of them."""
        return [self.sample(n, position) for position in step.positions]

    def _view(self, name: str, param: int, write: bool) -> memoryview:
        with self._at as h:
            at = getattr(h.lib, name)(h.pointer, param)
            if not at:
                raise h.error(-1)
            found = _library.view(at, self._shapes[param], h)
            return found if write else found.toreadonly()

    def values(self, param: int) -> memoryview:
        """The parameter's values, float32 of its shape (a scalar: [1]), without a copy: numpy's
        asarray and torch.frombuffer take them. To be read from a wait (or next, if not early) to
        the next push. Views may be kept; the handle's memory is, too, while there are any."""
        return self._view("weir_values", param, False)

    def gradient(self, param: int) -> memoryview:
        """Room for its gradient, writable, which servers on this machine read without a copy; this
        program's from a wait to the push."""
        return self._view("weir_gradient", param, True)

    def _push(self, name: str, param: int, data: Any, samples: float) -> None:
        with self._at as h:
            if not 0 <= param < len(self._shapes):
                raise Invalid("there is no parameter %d; %d were named" % (
                    param, len(self._shapes)))
            at, held = None, None
            if data is not None:
                at, held = _library.address(data, math.prod(self._shapes[param]))
            elif samples > 0:
                at = h.lib.weir_gradient(h.pointer, param)
            if held is not None:
                h.lent.setdefault(param, []).append(held)
            h.check(getattr(h.lib, name)(h.pointer, param, at, samples))

    def push(self, param: int, gradient: Any = None, *, samples: float) -> None:
        """Gives the step's gradient away, the mean over `samples`, its weight. gradient: float32 of
        the parameter's shape, borrowed until wait() for it is True or next() has given a step: do
        not change it before; None: what is in gradient(param). samples 0: it counts and adds
        nothing. Returns at once."""
        self._push("weir_push", param, gradient, samples)

    def push_values(self, param: int, values: Any, *, samples: float) -> None:
        """With the setting own_local_steps: what this member's own steps have made of them."""
        self._push("weir_push_values", param, values, samples)

    def pull(self, param: int) -> bool:
        """Asks for newer values, without a contribution; wait has them. False: as wait."""
        with self._at as h:
            return h.check(h.lib.weir_pull(h.pointer, param)) != REBASED

    def wait(self, param: int, timeout: Optional[float] = None) -> bool:
        """Waits for what was pushed or asked for of the parameter: its values are those of the step
        at hand, or once it is pushed the next one's. False: this step counts no more, next() says
        where it goes on; what is pushed until then does no harm. Timeout: call again."""
        with self._at as h:
            code = h.await_(lambda ms: h.lib.weir_wait(h.pointer, param, ms), timeout)
            if code == AGAIN:
                raise _library.error(AGAIN, "parameter %d: not within %g s" % (param, timeout or 0))
            if code == OK:
                h.lent.pop(param, None)
            return code != REBASED

    def leave_soon(self, timeout: Optional[float] = 10) -> bool:
        """Asks the servers to go on without this member: next() is called as before until it gives
        None. False: not told in time, but they will be."""
        with self._at as h:
            return h.check(h.lib.weir_leave_soon(h.pointer, _ms(timeout))) == OK

    def stop_job(self, timeout: Optional[float] = 10) -> bool:
        """Ends the job where it is, for all: after a last checkpoint next() gives None to each
        member, with `result` "done", and the servers exit with 0. From the first step on. False:
        the servers were not reached in time."""
        with self._at as h:
            return h.check(h.lib.weir_stop_job(h.pointer, _ms(timeout))) == OK

    def leave_failed(self, why: str) -> None:
        """This member ends for good with this error: the servers are told, and do not wait."""
        with self._at as h:
            h.check(h.lib.weir_leave_failed(h.pointer, " ".join(why.split())[:400].encode()))

    def cancel(self) -> None:
        """Whoever waits gets Cancelled, and the member goes on no more. For any thread."""
        with self._at as h:
            h.lib.weir_cancel(h.pointer)

    def fileno(self) -> int:
        """A descriptor to poll, readable while there may be events; asked for first before the
        first step. It is the member's: do not read or close it."""
        with self._at as h:
            return h.check(h.lib.weir_fd(h.pointer))

    def next_event(self) -> Optional[Event]:
        """The next event; None: there is none."""
        with self._at as h:
            out = _library.EventStruct()
            if h.check(h.lib.weir_next_event(h.pointer, ctypes.byref(out))) == AGAIN:
                return None
            return Event(KINDS.get(out.kind, str(out.kind)), out.step, out.generation, out.param,
                         out.code)

    def close(self) -> None:
        """Says goodbye after the last step; else this member is missed like one that was killed:
        the servers wait for a new process in its place. Views of its memory stay as they are. For
        any thread, and signal handlers: calls that others have under way end with Invalid, and then
        it is done."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close(self.result is not None)

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, kind: Any, error: Any, _trace: Any) -> None:
        if error is not None and self.result is None:
            try:  # the servers need not wait for who goes on no more
                if isinstance(error, Exception):
                    self.leave_failed("%s: %s" % (kind.__name__, error))
                else:  # Ctrl-C, sys.exit(): no failure of the job
                    self.leave_soon(GOODBYE)
            except _library.Error:
                pass  # none were joined, or they have been told goodbye
        self.close()


def from_torchrun(settings: Mapping[str, Any],
                  environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The settings, with the cluster of torchrun's environment where nothing else says it. Invalid:
    this is one of several processes, and nothing says where the servers are: each of them would
    train alone. n_workers=1 means just that."""
    made = {name: value for name, value in settings.items() if value is not None}
    n_processes = environ.get("WORLD_SIZE", "1")
    if "TF_CONFIG" in environ or "slurm_ps" in made or (
            "TORCHELASTIC_RUN_ID" not in environ and n_processes in ("", "1")):
        return made
    named = {"task_index", "n_workers", "worker_hosts", "join"} & made.keys()
    if str(made.get("n_workers")) == "1" and not made.get("ps_hosts"):
        return made
    if not named:
        made["ps_hosts"] = made.get("ps_hosts") or environ.get("WEIR_PS_HOSTS")
    if not made.get("ps_hosts"):
        raise Invalid("torchrun has started this as one of %s processes, but nothing says where "
                      "the servers are; give ps_hosts, or set WEIR_PS_HOSTS (n_workers=1: each "
                      "process trains alone)" % n_processes)
    return made if named else {**made, "task_index": environ.get("RANK"), "n_workers": n_processes}
