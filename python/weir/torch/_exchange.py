"""Exchange: trains a module on Weir's servers."""
from __future__ import annotations

import collections
import copy
from typing import Any, Iterator, Mapping, Optional, Sequence, Sized, Union

import torch

from .._library import Invalid, Timeout, note
from .._trace import Trace
from ..member import Member, Step, note_empty_loop
from . import _guards, _hooks, _tables
from ._checks import Checks
from ._device import Device, Host, arithmetic, device_of
from ._epochs import Epochs
from ._optimizer import OwnOptimizer
from ._loader import positions
from ._slots import Slot
from ._ways import ByName, LocalSteps, Way


Optimizer = Union[str, torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]


def _way(optimizer: Optimizer, local_steps: int, batch_size: Any,
         backwards: int, early: bool, later: Sequence[str], scheduler: Any,
         scheduler_steps: int) -> Way:
    own = not isinstance(optimizer, str)
    if scheduler is not None and (not own or local_steps > 1):
        raise Invalid("scheduler= needs optimizer=, a PyTorch optimizer whose steps the servers "
                      "make; with the name of an optimizer use the setting lr_schedule")
    if not own:
        return ByName(optimizer, backwards, early, later)
    if later:
        raise Invalid("later= needs the name of an optimizer of the servers; with a PyTorch "
                      "optimizer all of its parameters may require gradients later")
    if early or backwards != 1:
        raise Invalid("%s needs the name of an optimizer of the servers; a PyTorch optimizer "
                      "pushes in step(), after any number of backward() calls" % (
                          "early=True" if early else "backwards=%d" % backwards))
    several = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    if not several:
        raise Invalid("optimizer= is an empty list")
    if local_steps > 1 and len(several) > 1:
        raise Invalid("local_steps= needs a single optimizer, whose groups have all parameters")
    if local_steps > 1:
        return LocalSteps(several[0], local_steps, batch_size)
    return OwnOptimizer(several, scheduler, scheduler_steps)


class Exchange:
    """Trains a module on Weir's servers. Iterating over it yields the job's steps. Members and
    servers may be killed, join and leave during training.

    model: its parameters that require gradients are trained. They may have any dtype and one
        device: float32 parameters on the CPU use the member's memory, and the values of other
        parameters are copied, those of a GPU while it computes. Parameters that require no
        gradients keep each member's own values. A state dict must be loaded before the first step.
    optimizer: one of three.
        The name of an optimizer of the servers ("sgd", "momentum", "nesterov", "adagrad",
        "rmsprop", "adam", "adamw"): in each step the program makes one forward and one backward (or
        `backwards` of them), and needs no optimizer and no zero_grad. Each gradient is sent while
        backward computes the next one. When the last backward returns, the parameters have the
        values of the next step.
        A PyTorch optimizer (SGD, Adam, AdamW, RMSprop, Adagrad) over parameters of the model: the
        servers make its steps, with its options and groups. The loop stays as it is: its step()
        sends the gradients in .grad, and when it returns, the parameters have the new values. The
        state of the optimizer is in the servers. A list of several such optimizers, for example
        of a GAN: each step is that of one of them, and the other parameters stay. They
        must have the same class and options, but for lr and weight_decay.
        Any PyTorch optimizer, if local_steps is above 1: each member makes `local_steps` steps by
        itself, then the servers average the changes (DiLoCo). The state stays in the process.
    local_steps: number of steps between two exchanges.
    early: True: a step begins before its values have arrived, and the forward of a module waits for
        the module's own parameters (MultiheadAttention: for all parameters in it). The exchange
        then overlaps with the next forward. Between backward and the next forward a program must
        not read parameters, except by model.state_dict(), and modules must not use the parameters
        of other modules without calling these modules. Compiled modules ignore `early`.
    buffers: names of floating-point buffers that are averaged in each step; default: the running
        statistics of batch normalization. Other buffers may differ between members.
    backwards: number of backward() calls in a step, whose gradients are added, if `optimizer` is a
        name.
    later: names of parameters that require no gradients at the start, and may require them later,
        if `optimizer` is a name. All parameters of a PyTorch optimizer may.
    scheduler: a scheduler of torch.optim.lr_scheduler over the PyTorch optimizer, or a function of
        the number of a step that returns the factor of the learning rate. The program calls the
        scheduler's step() as before.
    scheduler_steps: number of steps between two calls of the scheduler's step().
    trace: file for the times of computing, sending and waiting (docs/guide/tracing.md).
    settings: settings of weir.Member: the cluster, batch_size (of one member), train_steps,
        learning_rate and so on.
    All methods raise weir.Error. In a process with an exchange, calls of PyTorch that would have no
    effect on the servers' parameters raise weir.Invalid: step() of another optimizer or scheduler,
    clip_grad_norm_, GradScaler.scale()."""

    def __init__(self, model: torch.nn.Module,
                 optimizer: Optimizer = "adam", *, local_steps: int = 1,
                 early: bool = False, buffers: Optional[Sequence[str]] = None, backwards: int = 1,
                 later: Sequence[str] = (), scheduler: Any = None, scheduler_steps: int = 1,
                 trace: Optional[str] = None, **settings: Any) -> None:
        self.model = getattr(model, "_orig_mod", model)  # the module that torch.compile() wraps
        self._outer = model
        self.local_steps = int(local_steps)
        self._way = _way(optimizer, self.local_steps, settings.get("batch_size"), backwards,
                         early and not _hooks.is_compiled(model), later, scheduler, scheduler_steps)
        for name in self._way.settings().keys() & settings.keys():
            raise Invalid("the setting %s belongs to the optimizer of the exchange; remove it from "
                          "the settings" % name)
        self.settings = {**self._way.settings(), **settings}
        if self.local_steps > 1:
            self.settings["local_steps"] = self.local_steps
        self.member = Member(**self.settings)
        self.buffers = _hooks.averaged_buffers(self.model) if buffers is None else list(buffers)
        self._trace = Trace(trace) if trace else None
        self.slots: list[Slot] = []
        self.tables: list[_tables.Table] = []
        self.step: Optional[Step] = None  # the current step
        self.counts = True  # False: the step's generation has ended, and the step will be repeated
        self._began = self._over = self._skipped = False
        self._checks: Optional[Checks] = None
        self._device: Optional[torch.device] = None  # CUDA device of the parameters
        self._copies = Host()
        self._by_id: dict[int, Slot] = {}  # the parameters by id()
        # Number of the job's steps, if this member joins after the last one.
        self._train_steps = settings.get("train_steps") or 200
        self._n_done = 0  # _made() when this member ended
        self._torn = False  # whether it ended within a step, so that values are those of two steps
        self._attached: list[Any] = []  # hooks
        self._epochs: Optional[Epochs] = None  # the pass that ends the loop over the steps

    @property
    def early(self) -> bool:
        """Whether a step begins before its values have arrived."""
        return self._way.early

    @property
    def pinned_bytes(self) -> int:
        """Size of the host memory that is pinned for copies to and from a GPU."""
        return self._copies.pinned_bytes

    @property
    def train_steps(self) -> int:
        """Number of the job's steps."""
        return self.step.train_steps if self.step is not None else int(self._train_steps)

    def _begin(self) -> None:
        tensors = [(name, p, False) for name, p in self._way.parameters(self.model)]
        tensors += [(name, b, True) for name, b in _hooks.floating(self.model, self.buffers)]
        self._device = device_of(self._outer, [t for _, t, _ in tensors])
        if "arithmetic" not in self.settings:
            self.member.set("arithmetic", "PyTorch %s, %s" % (torch.__version__, arithmetic(
                self._device)))
        for name, t, average in tensors:
            if t.numel() == 0:  # for example in Linear(8, 0)
                continue
            if t.is_complex():
                raise Invalid("parameter '%s' is complex; the servers store only real parameters"
                              % name)
            values = t.detach().to("cpu", torch.float32).contiguous()
            rate, decay = (1.0, 1.0) if average else self._way.factors(t)
            number = self.member.param(name, t.shape, values, 0 if average else None, rate=rate,
                                       decay=decay)
            self.slots.append(Slot(number, name, t, average))
        self.tables = _tables.begin(self)
        if self._trace:
            self._trace.listen(self.member, [s.name for s in self.slots])
        self._began = True

    def _attach(self) -> None:
        """Adds hooks to tensors and modules. Must be called when the member has its memory."""
        for s in self.slots:
            s.begin(self.member, self._way.in_place)
        if self._device is not None and self.slots:
            self._copies = Device(self._device, self.slots)
        self._checks = Checks(self.model, self.slots)
        self._attached += self._way.attach(self)
        if self._trace:
            self._attached += self._trace.hooks(self._outer, not _hooks.is_compiled(self._outer),
                                                _hooks.Own)
        refuse = _hooks.Hook(self, _hooks.refuse_load)
        for module in self.model.modules():
            self._attached.append(module._register_load_state_dict_pre_hook(refuse))
        self._by_id = {id(s.tensor): s for s in self.slots if not s.average}
        _guards.watch(self)

    def trains(self, tensor: torch.Tensor) -> bool:
        """Returns whether the servers hold this parameter now."""
        s = self._by_id.get(id(tensor))
        return s is not None and s.tensor is tensor and not self._over

    def _need(self, slots: Sequence[Slot]) -> None:
        """Waits for the values of these parameters, before a module reads them."""
        late = [s for s in slots if not s.fresh]
        if not late or self._over or self.step is None or not self.counts:
            return
        if any(s.pushed for s in late):
            self._finish()  # small parameters share a message, so all must be pushed before a wait
            late = self._bring_early(late)
        for s in late:
            if not self.counts:
                break
            begin = Trace.now()
            self.counts = self.member.wait(s.number)
            if self.counts:
                self._bring(s)
            if self._trace:
                self._trace.add("wait", "parameters of " + s.name, begin)
        self._copies.arrive()

    def _bring_early(self, late: list[Slot]) -> list[Slot]:
        """Waits for all pushes. Brings values that arrive before the end of this wait, so that
        their copies overlap with the rest of backward on a GPU. Returns the slots whose values have
        not arrived."""
        pushed: collections.deque[Slot] = collections.deque()
        wanted = set(late)
        for made in self._copies.pushes():
            pushed.extend({made} & wanted)
            try:
                while pushed and self.counts:
                    self.counts = self.member.wait(pushed[0].number, 0)
                    if self.counts:
                        self._bring(pushed.popleft())
            except (Timeout, Invalid):  # Invalid: a parameter of the same message is not pushed yet
                pass
        return [s for s in late if not s.fresh]

    def _bring(self, s: Slot) -> None:
        s.bring(self._copies)
        if self._trace:
            self._trace.answered(s.number)

    def _push(self, s: Slot) -> None:
        if self._way.in_place and not s.average:
            self._checks.values([s])
        begin = self._trace.push(s.number) if self._trace else 0
        self._way.push(self, s)
        s.pushed, s.fresh = True, False
        if self._trace:
            self._trace.handed(s.number, begin)

    def _finish(self) -> None:
        """Pushes all that is not pushed yet: parameters without a gradient, and buffers."""
        left = [s for s in self.slots if not s.pushed]
        for s in left:
            # The step did not read this parameter, whose earlier push may still use its array.
            if not s.fresh and self.counts:
                self.counts = self.member.wait(s.number)
                if self.counts:
                    self._bring(s)
        self._copies.arrive()
        for s in left if self.counts else ():
            self._push(s)
        for t in self.tables:
            if self.counts and not t.pushed:
                t.push()

    def skip(self) -> None:
        """Makes this step add nothing, for example because its gradients are not finite. Must be
        called before backward(). A program with a PyTorch optimizer must call it before the next
        step; the optimizer's step() is then not called for this step."""
        if any(s.pushed for s in self.slots):
            raise Invalid("gradients of this step are already being sent")
        self._skipped = True

    def __iter__(self) -> Iterator[Step]:
        if self._over:
            note_empty_loop()
        return self

    def __next__(self) -> Step:
        """Returns the next step. First it ends the current one: pushes what is not pushed yet."""
        if self._over:
            raise StopIteration
        first = self._epochs.take() if self._epochs else None
        if first is not None:
            return first
        if not self._began:
            self._begin()
        if self.step is not None:
            if self.counts and self._way.in_place:
                self._checks.step(self.model)
            within = self._way.end_step(self)
            if within is not None:
                self.step = within
                return within
            for _ in self._copies.pushes():
                pass
            self._copies.settle()
        begin = Trace.now()
        step = self.member.next(early=self.early)
        if step is None:
            self._end()
            raise StopIteration
        if self._checks is None:
            self._attach()
        if self._trace:
            self._trace.task = step.member
            self._trace.begin(step.step)
            self._trace.add("wait", "next step", begin)
        for s in self.slots:
            # Values that have arrived in the step before stay, unless another start changed them.
            here = s.pushed and s.fresh and self.counts and not step.began
            if not here and (s.fresh or not s.pushed):
                self._copies.use(s)  # the program may have read the values since the push
            s.fresh, s.pushed, s.backwards = here, False, 0
            if not self.early and not here:
                self._bring(s)
        self._copies.arrive()
        for t in self.tables:
            t.begin_step()
        self.counts, self._skipped = True, False
        self._checks.n_steps += 1
        self._checks.is_last = step.step + 1 >= step.train_steps
        self.step = self._way.begin_step(self, step)
        return self.step

    def epochs(self, n: Union[int, Sized]) -> Iterator[int]:
        """Yields the number of each pass over n samples, or over a data set of this length, until
        the job ends. A loop over the exchange, a Sampler or a Loader makes the steps of the present
        pass only, so a script keeps its loop over epochs:

            for epoch in exchange.epochs(data):
                for x, y in loader:
                    ...
                evaluate(model)

        The numbers begin at 0 or, in a process that was started again, with the job's present pass.
        The step that has the last sample of a pass is the pass' last step, and may have the first
        samples of the next pass. If the job goes back to an earlier step at the end of a pass,
        because members or servers change, the pass' number is yielded again. Mode `sync` only."""
        if self.settings.get("sync_mode", "sync") != "sync" or self.settings.get(
                "replicas_to_aggregate"):
            raise Invalid("epochs() needs sync_mode=sync without backup workers; in other modes "
                          "the servers assign the samples of each step")
        return self._make_passes(Epochs(self, n if isinstance(n, int) else len(n)))

    def _make_passes(self, epochs: Epochs) -> Iterator[int]:
        try:
            yield from epochs
        finally:
            self._epochs = None

    def samples(self, n: Union[int, Sized]) -> list[int]:
        """Returns the numbers, below n or the length of a data set, of the samples in this step's
        batch, [step.n_samples]. Each pass has every sample once, whichever members the job has, in
        an order that depends on the setting `seed` and the pass."""
        if self.step is None:
            raise Invalid("samples can only be set during a step")
        return self.member.samples(self.step, n if isinstance(n, int) else len(n))

    def next_samples(self, n: Union[int, Sized]) -> list[int]:
        """Returns the numbers of the samples in this member's next batch, if no member joins or
        leaves before, for reads(). Returns an empty list after the last step, and in modes other
        than `sync`, in which servers assign the samples when a step begins."""
        if self.step is None:
            raise Invalid("next_samples() can only be called during a step")
        if self.settings.get("sync_mode", "sync") != "sync":
            return []
        n = n if isinstance(n, int) else len(n)
        batches = positions(self.step, self.local_steps)
        next(batches)
        return [self.member.sample(n, position) for position in next(batches, ())]

    def reads(self, module: torch.nn.Module, keys: torch.Tensor) -> None:
        """Names keys of the next step's batch, in the form in which `module`, an Embedding or
        EmbeddingBag, receives them. Their rows then arrive with the answers to this step's
        gradients, so that the next forward need not request them. Several calls in a step add up.
        Must be called before the step's last backward() or its optimizer.step(). Rows of other keys
        are requested by forward."""
        table = getattr(module, "_table", None)
        if table not in self.tables:
            raise Invalid("reads() needs an Embedding or EmbeddingBag of weir.torch that belongs "
                          "to the model, during a step")
        if self.counts:
            table.read_next(keys)

    def _end(self) -> None:
        """Ends this member. The module keeps the last values in its own memory, and its hooks are
        removed."""
        self._torn = self.member.result != "done" and any(
            s.values is not None and not s.fresh for s in self.slots)
        self._n_done = self._made()
        for s in self.slots if self.member.result else ():
            if s.values is None and self.member.result == "done":  # this member has made no step
                s.begin(self.member, False)
                s.fresh = False
            here = self.member.result == "done" or self._way.in_place
            if here and not s.fresh and s.values is not None and not s.moved():
                self._bring(s)
        for hook in self._attached:
            hook.remove()
        _guards.release(self)
        _tables.end(self)
        for s in self.slots:
            s.end()
        self._attached.clear()
        self.step, self._over = None, True
        if self.member.result == "left":
            note("this member left the job after %d steps, as requested; the job continues without "
                 "it" % self._n_done)
        elif self.member.result == "over":
            note("the job ended before this member joined, so the model keeps its own values; the "
                 "last values are in the servers' checkpoint")
        try:
            self._copies.close()
            if self._trace:
                self._trace.write()
        finally:
            self.member.close()

    def _made(self) -> int:
        """Returns the number of steps that led to the module's values."""
        if self._over:
            return self._n_done
        if self.member.result == "done":
            return self.train_steps
        if self.step is None:
            return 0
        return self.step.step + (self.counts and any(s.pushed for s in self.slots))

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of this process' state. "model": the module's state after the last step.
        "step": number of steps made. "optimizer": state of a PyTorch optimizer, if one is used. The
        state of a servers' optimizer is in the servers' checkpoints (load_checkpoint).

        Raises Invalid if some values are those of another step. This happens if a change of servers
        or members has ended the current step (`counts` is False): call again in the next step. It
        also happens if this member has closed or left within a step."""
        model = {name: t.detach().clone() for name, t in self.model.state_dict().items()}
        if self._torn:
            raise Invalid("this member ended during a step, and its parameters mix the values of "
                          "two steps; the servers' checkpoints have those of a single step")
        if self.step is not None and not self.counts:
            raise Invalid("step %d was cancelled, and the parameters mix the values of two steps; "
                          "repeat the call in the next step" % self.step.step)
        rule = self._way.optimizer
        made = {"model": model, "step": self._made()}
        return {**made, "optimizer": copy.deepcopy(rule.state_dict())} if self._way.local else made

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads the state of the module, and of a PyTorch optimizer if one is used, before the
        first step. A new job starts at step 0 with the values of the member that joins first. In a
        running job this member resumes at the servers' step, with the servers' values."""
        if self._began:
            _hooks.refuse_load(self)
        self.model.load_state_dict(state["model"])
        if self._way.local and "optimizer" in state:
            self._way.optimizer.load_state_dict(state["optimizer"])

    @property
    def result(self) -> Optional[str]:
        """Reason why there are no more steps: "done", "left" or "over"; None before."""
        return self.member.result

    def leave_soon(self, timeout: Optional[float] = 10) -> bool:
        """Requests that the servers continue without this member, whose steps then end soon. Any
        thread and signal handlers may call it at any time. Returns True if the servers received the
        request, or if this member has ended. Returns False if they did not receive it in time (the
        library keeps trying), or if this member trains alone."""
        if self._over:
            return True
        try:
            return self.member.leave_soon(timeout)
        except Invalid:  # this member trains alone, or has just ended
            return False

    def stop_job(self, timeout: Optional[float] = 10) -> bool:
        """Stops the job for all members, after a last checkpoint (Member.stop_job)."""
        return self._over or self.member.stop_job(timeout)

    def close(self) -> None:
        """Ends this member. After the last step of the job it sends the servers a leave message;
        before, the servers wait for a new process in its place."""
        step = self.step
        if step is not None and step.step + 1 == step.train_steps and self.counts and all(
                s.pushed and s.fresh for s in self.slots):
            next(self, None)  # the job is done
        if not self._over:
            self._end()

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not self._over:
            self.member.__exit__(kind, error, trace)
            self._end()
