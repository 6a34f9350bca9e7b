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

from . import _library, _tables
from ._library import AGAIN, DONE, LEFT, OK, OVER, REBASED, Invalid


@dataclasses.dataclass(frozen=True, eq=False)
class Step(int):
    """A step of the job: struct weir_step of weir.h. It is also the number `step`, so `step % 100`
    and "%d" % step are those of the number; only as a condition, step 0 is true, too."""
    step: int  # counts from 0
    train_steps: int  # number of steps of the job
    position: int  # position of the first sample of this member's batch
    n_samples: int  # size of the batch
    stride: int  # distance between its samples
    generation: int  # number of the servers' generation; 0: there are no servers
    member: int  # permanent number of this member
    rank: int
    n_members: int
    began: bool  # first step after a start; values may differ from the last step's
    n_regions: int  # number of the job's regions; 0: the servers have no parent

    def __new__(cls, step: int, *_: Any, **_more: Any) -> "Step":
        return super().__new__(cls, step)

    def __str__(self) -> str:
        return str(self.step)

    def __bool__(self) -> bool:
        return True  # for `while step := member.next()`

    @property
    def positions(self) -> range:
        """Positions of this member's samples, counted over all passes."""
        return range(self.position, self.position + self.n_samples * self.stride, self.stride)


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of next_event()."""
    kind: str  # "began", "ready" (the values of `param`), "rebased", "stopped"
    step: int
    generation: int
    param: int
    code: int


TURN = 0.2  # seconds of one wait in the library; Python's signal handlers run between waits
GOODBYE = 2.0  # seconds for the request to leave after an interrupt
AT_EXIT = 5  # seconds for other threads' calls to end
_OWN_ARRAY: Any = object()  # stands for the array of gradient()
ENDS = {DONE: "done", LEFT: "left", OVER: "over"}
KINDS = {1: "began", 2: "ready", 3: "rebased", 4: "stopped"}


def note_empty_loop() -> None:
    """Prints that a program has begun another loop over the steps of a member that has ended."""
    _library.note("this loop makes no step, because the job or this member's part in it has ended: "
                  "a single loop makes all steps of the job; for a loop over epochs use "
                  "Exchange.epochs() of weir.torch")


def _ms(timeout: Optional[float]) -> int:
    return -1 if timeout is None else min(2**31 - 1, max(0, math.ceil(timeout * 1000)))


class _Handle:
    """The library's handle of a member. Its memory is freed when no Member, call or view refers to
    this object. Calls are made within `with handle:`. After close() no call begins, and the last
    call that ends sends the leave message. There is no lock, since a signal handler may also call
    close()."""

    def __init__(self) -> None:
        self.lib = _library.library()
        made = ctypes.c_void_p()
        code = self.lib.weir_open(ctypes.byref(made))
        if code != OK:
            raise _library.error(code, self.lib.weir_code_text(code).decode())
        self.pointer, self.closed = made, False
        self.calls: list[None] = []  # an entry for each call in progress
        self.goodbyes: list[None] = [None]  # one entry until the leave message is sent
        self.gone = False  # whether it was sent, after which no thread calls the library
        self.lent: dict[int, list[Any]] = {}  # buffers that the library may read, by parameter
        self.first: list[Any] = []  # functions of first values, which the library may call
        self.first_errors: list[BaseException] = []  # exceptions of these functions
        _open.add(self)

    def __del__(self) -> None:
        made = getattr(self, "pointer", None)
        if made is not None and not _ended:  # at the program's exit, views may outlive their handle
            _free(self.lib, made, self.first)

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
        """Sends the leave message of a closed handle, once, when no call is in progress. Does not
        free the memory."""
        while not self.calls:
            try:
                self.goodbyes.pop()
            except IndexError:
                return
            if not self.calls:  # a call that begins from now on finds the handle closed
                self.gone = self.lib.weir_goodbye(self.pointer) == OK
                if self.gone:
                    self.lent.clear()
                else:
                    self.goodbyes.append(None)
                    _late.append(self._say_goodbye)
                return
            self.goodbyes.append(None)

    def error(self, code: int) -> _library.Error:
        """Returns the exception for the last call that failed."""
        return _library.error(code, self.lib.weir_error(self.pointer).decode("utf-8", "replace"))

    def check(self, code: int) -> int:
        """Returns the code, or raises an exception if the code is an error."""
        if code < 0:
            cause = self.first_errors[0] if self.first_errors else None
            raise (Invalid("the member is closed") if self.closed else self.error(code)) from cause
        return code

    def await_(self, call: Callable[[int], int], timeout: Optional[float]) -> int:
        """Repeats call(milliseconds) in short turns until the timeout, so that Python handles
        Ctrl-C and other signals between two turns. Returns the last code."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            code = self.check(call(_ms(min(TURN, left))))
            if code == AGAIN and self.closed:
                raise Invalid("the member is closed")
            if code != AGAIN or left <= TURN:
                return code

    def close(self, over: bool) -> None:
        """Refuses further calls, and cancels calls in progress, which end soon. over: the member
        has no more steps."""
        self.closed = True
        self.calls.append(None)  # the cancel counts as a call, and so delays the leave message
        try:
            if len(self.calls) > 1 and self.goodbyes and not over:
                self.lib.weir_cancel(self.pointer)
        finally:
            self.__exit__()


_open: "weakref.WeakSet[_Handle]" = weakref.WeakSet()
_late: list[Callable[[], None]] = []  # calls that were refused within the log's function
_ended = False  # whether the program is ending; then memory stays, because views may be read


def _free(lib: Any, made: ctypes.c_void_p, used: list[Any]) -> None:
    """Frees a library's handle. used: objects that must live until then."""
    if lib.weir_goodbye(made) == OK:  # unlike weir_close it reports whether it was refused
        lib.weir_close(made)
    else:
        _late.append(lambda: _free(lib, made, used))


def _work_off() -> None:
    """Repeats the calls in _late. Each is repeated once, since it may be refused again."""
    for _ in range(len(_late)):
        try:
            _late.pop(0)()
        except IndexError:
            return  # another thread has repeated it


@atexit.register
def _close_all() -> None:
    """Closes all handles at exit. Waits at most AT_EXIT seconds for threads that are in a call.
    Does not free the memory of a handle that is still used."""
    global _ended
    _ended = True
    handles, deadline = list(_open), time.monotonic() + AT_EXIT
    _work_off()
    for h in handles:
        h.close(False)
    for h in handles:
        while not h.gone and time.monotonic() < deadline:
            time.sleep(0.01)


class Member(_tables.Tables):
    """A member of a job of Weir's servers; without `ps_hosts` it trains alone.

        with weir.Member(ps_hosts="a:2222", n_workers=2, task_index=0, batch_size=64) as member:
            W = member.param("weights", (10, 784))
            for step in member:
                ...                       # member.values(W), step.positions
                member.push(W, gradient, samples=step.n_samples)

    settings: the settings of docs/reference/weir-h.md by name; values are numbers, strings or True.
    If the settings describe no cluster, the cluster is that of torchrun's environment (the servers
    are in ps_hosts or WEIR_PS_HOSTS), of TF_CONFIG, or with slurm_ps that of the Slurm step.
    All calls raise weir.Error with the library's message. Any number of threads at once may call
    push, push_values, wait, pull, values, gradient, leave_soon, cancel, next_event and close; only
    one thread at a time may call the other methods. A process with an open member must not fork
    without exec.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._handle: Optional[_Handle] = _Handle()
        self._shapes: list[tuple[int, ...]] = []
        self.result: Optional[str] = None  # "done", "left", "over", once next() returned None
        for name, value in from_torchrun(settings).items():
            self.set(name, value)

    @property
    def _at(self) -> _Handle:
        handle = self._handle  # another thread may close it
        if handle is None:
            raise Invalid("the member is closed")
        return handle

    def set(self, name: str, value: Any) -> None:
        """Changes a setting, before the first step. value None: does nothing. Raises Invalid for an
        unknown name or a wrong value."""
        with self._at as h:
            if value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                h.check(h.lib.weir_set(h.pointer, name.encode(), text.encode()))

    def param(self, name: str, shape: Sequence[int], values: Any = None,
              keep: Optional[float] = None, *, rate: float = 1.0, decay: float = 1.0) -> int:
        """Adds a parameter of this shape, 0 to 6 dimensions, and returns its number. Must be called
        before the first step; all members add the same parameters in the same order.

        values: first values, float32 of that shape, copied; None: zeros. Or a function without
        arguments that returns them, the same ones each time: then no copy is kept, and another
        thread may call it, at the start, and again if the job restarts at its beginning. The job
        starts with the values of the member that joins first.

        keep: makes the parameter a statistic, which is not trained: in each step its value is keep
        (0 to 1) times the old value plus (1 - keep) times the mean of the pushed values.

        rate, decay: factors, 0 or above, by which the job's learning rate and weight decay are
        multiplied for this parameter; all members set the same."""
        with self._at as h:
            n = math.prod(shape)
            given = values is not None and not callable(values)
            at, held = _library.address(values, n) if given else (None, None)
            dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
            param = h.check(h.lib.weir_param(h.pointer, name.encode(), 0, len(shape), dims, at))
            del held
            if callable(values):
                h.first.append(_library.first_values(values, n, h.first_errors))
                h.check(h.lib.weir_param_first_values(h.pointer, param, h.first[-1], None))
            if keep is not None:
                h.check(h.lib.weir_param_average(h.pointer, param, keep))
            if (rate, decay) != (1, 1):
                h.check(h.lib.weir_param_factors(h.pointer, param, rate, decay))
            self._shapes.append(tuple(shape))
            return param

    def next(self, timeout: Optional[float] = None, early: bool = False) -> Optional[Step]:
        """Waits for the values of the next step, and returns the step. Returns None if the job is
        done, if this member left, or if the job was over before this member joined (see `result`).
        The program must have pushed all parameters of the previous step. early: returns before the
        values have arrived; the program calls wait() before it reads a parameter. timeout: seconds;
        None: no timeout. After Timeout, call next() again."""
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
            got = {f.name: getattr(out, f.name) for f in dataclasses.fields(Step)}
            return Step(**{**got, "began": bool(got["began"])})

    def step_rate(self, factor: float) -> None:
        """Sets a factor, 0 or above, of the learning rate for the updates by the present step; in
        each new step it is 1. Must be called before the step's first push. In sync all members set
        the same factor in a step; the servers refuse a member with another one. The factor should
        follow from step.step alone, since a step that is made again needs the call again. Raises
        Unsupported with local_steps, with backup workers and in regions."""
        with self._at as h:
            h.check(h.lib.weir_step_rate(h.pointer, factor))

    def __iter__(self) -> Iterator[Step]:
        """Yields all steps until the job ends."""
        if self.result is not None:
            note_empty_loop()
        while True:
            step = self.next()
            if step is None:
                return
            yield step

    def sample(self, n: int, position: int) -> int:
        """Returns which of n samples (1 to 2**26) lies at a position. Each pass has every sample
        once, in an order that depends on the setting `seed` and the pass. May be called before the
        first step."""
        with self._at as h:
            found = h.lib.weir_sample(h.pointer, n, position)
            return h.check(found)

    def samples(self, step: Step, n: int) -> list[int]:
        """Returns the [n_samples] numbers, below n, of the samples that this member reads in a
        step."""
        return [self.sample(n, position) for position in step.positions]

    def _view(self, name: str, param: int, write: bool) -> memoryview:
        with self._at as h:
            at = getattr(h.lib, name)(h.pointer, param)
            if not at:
                raise h.error(-1)
            found = _library.view(at, self._shapes[param], h)
            return found if write else found.toreadonly()

    def values(self, param: int) -> memoryview:
        """Returns a view of the parameter's values, for numpy.asarray or torch.frombuffer: float32
        of the parameter's shape (of a scalar: [1]), without a copy. The program may read them after
        wait(), or after next() without early, until its next push. The memory lives as long as a
        view of it."""
        return self._view("weir_values", param, False)

    def gradient(self, param: int) -> memoryview:
        """Returns a writable array for the gradient, which servers on this machine read without a
        copy. The program may write to it after wait() until the push."""
        return self._view("weir_gradient", param, True)

    def _push(self, name: str, param: int, data: Any, samples: float) -> None:
        with self._at as h:
            if not 0 <= param < len(self._shapes):
                raise Invalid("there is no parameter %d; %d were named" % (
                    param, len(self._shapes)))
            at, held = None, None
            if data is _OWN_ARRAY:
                at = h.lib.weir_gradient(h.pointer, param) if samples > 0 else None
            elif data is not None:
                at, held = _library.address(data, math.prod(self._shapes[param]))
            if held is not None and name == "weir_push":
                h.lent.setdefault(param, []).append(held)
            h.check(getattr(h.lib, name)(h.pointer, param, at, samples))

    def push(self, param: int, gradient: Any = _OWN_ARRAY, *, samples: float) -> None:
        """Pushes the gradient of this step, and does not wait. samples: number of samples of which
        the gradient is the mean, and the weight of the contribution; 0: the contribution counts and
        adds nothing. gradient: float32 of the parameter's shape; left out: the array of
        gradient(param). None: this member has no gradient for the parameter in this step. Then the
        push counts as zeros, but if no member has a gradient, the parameter and the state of its
        optimizer stay. The array must not change until wait() for the parameter returns True, or
        next() returns a step."""
        self._push("weir_push", param, gradient, samples)

    def push_values(self, param: int, values: Any, *, samples: float) -> None:
        """Pushes the parameter's values after this member's own local steps (own_local_steps). The
        memory may be used again at once. None: these steps had no gradient for the parameter."""
        self._push("weir_push_values", param, values, samples)

    def pull(self, param: int) -> bool:
        """Requests newer values without a contribution; wait() waits for these values. Returns
        False if the step no longer counts."""
        with self._at as h:
            return h.check(h.lib.weir_pull(h.pointer, param)) != REBASED

    def wait(self, param: int, timeout: Optional[float] = None) -> bool:
        """Waits for the parameter's values. Before its push these are the values of the current
        step, and after it those of the next step. Returns False if the step no longer counts:
        next() returns the step to resume at, and pushes until then are ignored. After Timeout, call
        wait() again."""
        with self._at as h:
            code = h.await_(lambda ms: h.lib.weir_wait(h.pointer, param, ms), timeout)
            if code == AGAIN:
                raise _library.error(AGAIN, "parameter %d: no new values within %g s" %
                                     (param, timeout or 0))
            if code == OK:
                h.lent.pop(param, None)
            return code != REBASED

    def leave_soon(self, timeout: Optional[float] = 10) -> bool:
        """Requests that the servers continue without this member. The program calls next() until it
        returns None. Returns False if no server was reached in time; the library keeps trying."""
        with self._at as h:
            return h.check(h.lib.weir_leave_soon(h.pointer, _ms(timeout))) == OK

    def stop_job(self, timeout: Optional[float] = 10) -> bool:
        """Stops the job. After a last checkpoint, next() returns None at all members, with `result`
        "done", and the servers exit with 0. May be called after the first next(). Returns False if
        the servers were not reached in time."""
        with self._at as h:
            return h.check(h.lib.weir_stop_job(h.pointer, _ms(timeout))) == OK

    def leave_failed(self, why: str) -> None:
        """Ends this member for good. Sends the servers the error `why`, so that they do not wait
        for this member."""
        with self._at as h:
            h.check(h.lib.weir_leave_failed(h.pointer, " ".join(why.split())[:400].encode()))

    def cancel(self) -> None:
        """Ends all waits with Cancelled, and stops the member. Any thread may call it."""
        with self._at as h:
            h.lib.weir_cancel(h.pointer)

    def fileno(self) -> int:
        """Returns a descriptor to poll, which is readable while there may be events. Must first be
        called before the first step. The member owns it: do not read or close it."""
        with self._at as h:
            return h.check(h.lib.weir_fd(h.pointer))

    def next_event(self) -> Optional[Event]:
        """Returns the next event; None: no event."""
        with self._at as h:
            out = _library.EventStruct()
            if h.check(h.lib.weir_next_event(h.pointer, ctypes.byref(out))) == AGAIN:
                return None
            return Event(KINDS.get(out.kind, str(out.kind)), out.step, out.generation, out.param,
                         out.code)

    def close(self) -> None:
        """Ends this member. After the last step it sends the servers a leave message; otherwise
        they treat the member like a killed one, and wait for a new process in its place. Views of
        its memory stay valid. Any thread and signal handlers may call it: calls in progress in
        other threads raise Invalid first."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close(self.result is not None)

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, kind: Any, error: Any, _trace: Any) -> None:
        if error is not None and self.result is None:
            try:  # the servers then do not wait for this member
                if isinstance(error, Exception):
                    self.leave_failed("%s: %s" % (kind.__name__, error))
                else:  # Ctrl-C and sys.exit() are no failures
                    self.leave_soon(GOODBYE)
            except _library.Error:
                pass  # it joined no servers, or has left already
        self.close()


def from_torchrun(settings: Mapping[str, Any],
                  environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Returns the settings. If they describe no cluster, adds that of torchrun's environment.
    Raises Invalid if torchrun started several processes and the servers' addresses are missing,
    because each process would train alone. The setting n_workers=1 permits that."""
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
        raise Invalid("torchrun has started this as one of %s processes, but the addresses of the "
                      "servers are missing; set ps_hosts or WEIR_PS_HOSTS, or n_workers=1 "
                      "if each process is to train alone" % n_processes)
    return made if named else {**made, "task_index": environ.get("RANK"), "n_workers": n_processes}
