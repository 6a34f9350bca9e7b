"""Trains PyTorch modules on Weir's servers. Each parameter's gradient is sent while backward still
runs, and the next forward waits for the new values layer by layer.

    exchange = weir.torch.Exchange(model, optimizer="adamw", learning_rate=1e-3, batch_size=64)
    for step in exchange:
        x, y = batch(exchange.samples(len(data)))
        loss_of(model(x), y).backward()

Needs PyTorch 2.1 or later. docs/guide/own-model.md is the manual."""
from __future__ import annotations

import copy
import dataclasses
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Sized, Union

import torch

from . import checkpoint as _checkpoint
from ._library import Error, Invalid
from ._loader import Loader
from ._trace import Trace
from .member import Member, Step

__all__ = ["Exchange", "Loader", "Sampler", "load_checkpoint"]


class _Slot:
    """A parameter, or a buffer that is averaged, and its place in the member's memory."""

    def __init__(self, number: int, name: str, tensor: torch.Tensor, average: bool) -> None:
        self.number, self.name, self.tensor, self.average = number, name, tensor, average
        # Arrays of the member for values and gradient, float32 of the tensor's shape; None before
        # begin().
        self.values = self.room = None
        self.in_place = False  # whether the tensor's memory is `values`
        self.fresh = False  # whether the tensor has the values of this step
        self.pushed = False  # whether this step's gradient was pushed
        self.backwards = 0  # number of gradients that backward has computed in this step

    def begin(self, member: Member, in_place: bool) -> None:
        """Finds the member's arrays. in_place: the tensor may use the array of its values as its
        memory, if its type permits that."""
        def view(name: str) -> torch.Tensor:
            flat = torch.frombuffer(member._view(name, self.number, True), dtype=torch.float32)
            return flat.view(self.tensor.shape)
        t = self.tensor
        self.values, self.room = view("weir_values"), view("weir_gradient")
        self.in_place = (in_place and not self.average and t.dtype == torch.float32 and
                         t.device.type == "cpu" and t.is_contiguous())
        if self.in_place:
            t.data = self.values

    def moved(self) -> bool:
        """Returns whether the tensor was given other memory than the member's, in which new values
        arrive."""
        return self.in_place and self.tensor.data_ptr() != self.values.data_ptr()

    def check(self) -> None:
        if self.moved():
            raise Invalid("parameter '%s' has new memory since the first step (by .to(), "
                          ".double(), or assigned .data), and receives no values there; do that "
                          "before the first step, and copy values in place later" % self.name)

    def bring(self) -> None:
        """Copies the values, which have arrived, to the tensor, unless the tensor uses the member's
        memory."""
        self.check()
        if not self.in_place:
            self.tensor.data.copy_(self.values)
        self.fresh = True

    def end(self) -> None:
        """Copies the values to memory of the tensor's own, which stays when the member has
        ended."""
        if self.values is not None and self.in_place and not self.moved():
            self.tensor.data = self.values.clone()
        self.values = self.room = None


def _averaged_buffers(model: torch.nn.Module) -> list[str]:
    """Returns the names of the running statistics of normalization layers."""
    return [(prefix + "." if prefix else "") + name for prefix, module in model.named_modules()
            if isinstance(module, torch.nn.modules.batchnorm._NormBase)
            for name in ("running_mean", "running_var") if getattr(module, name) is not None]


def _compiled(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Returns the modules compiled by torch.compile() or their own compile(), outermost first."""
    return [m for m in model.modules() if hasattr(m, "_orig_mod") or
            getattr(m, "_compiled_call_impl", None) is not None]


class _Before:
    """A hook that runs before the forward of a compiled module. PyTorch's forward hooks do not
    serve: they become part of the compiled code, which ignores hooks that are added later."""

    def __init__(self, module: torch.nn.Module, hook: Callable[[], None]) -> None:
        self.module, call = module, module._compiled_call_impl
        self.call = call

        def after_hook(*args: Any, **kwargs: Any) -> Any:
            hook()
            return call(*args, **kwargs)
        module._compiled_call_impl = after_hook

    def remove(self) -> None:
        self.module._compiled_call_impl = self.call


def load_checkpoint(path: str, model: torch.nn.Module) -> dict[str, Any]:
    """Loads a checkpoint of the servers into the model's parameters, by their names. path: a
    manifest, or a folder, of which it loads the newest checkpoint.

    Returns a dict. "step": number of steps made. "optimizer", if the job's optimizer was adam or
    adamw: {"state"} with the moments, for PyTorch's Adam or AdamW over model.parameters(). Its
    learning rate and other settings are not in the checkpoint:

        rule.load_state_dict({**rule.state_dict(), **found["optimizer"]})

    Raises Error if the checkpoint is not whole or belongs to another model. Only tensors that
    require no gradient may be missing in it."""
    found = _checkpoint.read(path)
    model = getattr(model, "_orig_mod", model)
    state, moments = {}, {}

    def tensor(view: memoryview, like: torch.Tensor) -> torch.Tensor:
        return torch.frombuffer(view, dtype=torch.float32).view(like.shape)
    there = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, view in found.tensors.items():
        if name not in there or (tuple(there[name].shape) or (1,)) != tuple(view.shape):
            raise Error("checkpoint %s has '%s' of %s, the model has not" % (
                found.path, name, list(view.shape)))
        state[name] = tensor(view, there[name])
    parameters = list(model.named_parameters())
    for name, p in parameters:
        if p.requires_grad and name not in state:
            raise Error("checkpoint %s lacks '%s', which the model has" % (found.path, name))
    model.load_state_dict(state, strict=False)
    for i, (name, p) in enumerate(parameters):
        if name in found.slots and found.job["optimizer"]["name"] in ("adam", "adamw"):
            first, second = (tensor(v, p) for v in found.slots[name])
            moments[i] = {"step": torch.tensor(float(found.step)), "exp_avg": first,
                          "exp_avg_sq": second}
    return {"step": found.step, "position": found.position, "optimizer": {"state": moments}}


class Exchange:
    """Trains a module on Weir's servers. Iterating over it yields the job's steps. In each step the
    program makes one forward and one backward (or `backwards` of them); it needs no optimizer and
    no zero_grad. Members and servers may be killed, join and leave during training.

    model: its parameters that require gradients are trained. They may have any dtype and device:
        float32 parameters on the CPU use the member's memory, and the values of other parameters
        are copied. Parameters that require no gradients keep each member's own values. A state dict
        must be loaded before the first step.
    optimizer: the name of an optimizer of the servers ("sgd", "momentum", "nesterov", "adagrad",
        "rmsprop", "adam", "adamw"), or a PyTorch optimizer over the same parameters. If it is one
        of PyTorch, each member makes `local_steps` steps by itself, and then the servers average
        the changes (DiLoCo). The state of a PyTorch optimizer stays in the process.
    local_steps: number of steps between two exchanges.
    early: True: the forward of a module waits for the module's own parameters (MultiheadAttention:
        for all parameters in it). False: a step begins when all parameters have arrived. Modules
        that use the parameters of other modules without calling these modules need False.
    buffers: names of floating-point buffers that are averaged in each step; default: the running
        statistics of batch normalization. Other buffers may differ between members.
    backwards: number of backward() calls in a step, whose gradients are added.
    trace: file for the times of computing, sending and waiting (docs/guide/tracing.md).
    settings: settings of weir.Member: the cluster, batch_size (of one member), train_steps,
        learning_rate and so on.
    All methods raise weir.Error."""

    def __init__(self, model: torch.nn.Module,
                 optimizer: Union[str, torch.optim.Optimizer] = "adam", *, local_steps: int = 1,
                 early: bool = True, buffers: Optional[Sequence[str]] = None, backwards: int = 1,
                 trace: Optional[str] = None, **settings: Any) -> None:
        self.model = getattr(model, "_orig_mod", model)  # the module that torch.compile() wraps
        self._outer = model
        self.early, self.backwards = early and not _compiled(model), backwards
        self.inner = None if isinstance(optimizer, str) else optimizer
        self.local_steps, self.batch_size = int(local_steps), settings.get("batch_size")
        if self.inner is not None and self.local_steps < 2:
            raise Invalid("a PyTorch optimizer needs local_steps above 1")
        own = {"own_local_steps": True} if self.inner is not None else {"optimizer": optimizer}
        settings.setdefault("arithmetic", "PyTorch %s, %s, %d threads" % (
            torch.__version__, torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()))
        self.member = Member(local_steps=self.local_steps if self.local_steps > 1 else None,
                             **own, **settings)
        self.buffers = _averaged_buffers(self.model) if buffers is None else list(buffers)
        self._trace = Trace(trace) if trace else None
        self.slots: list[_Slot] = []
        self.step: Optional[Step] = None  # the current step
        self.counts = True  # False: the step's generation has ended, and the step will be repeated
        self._round: Optional[Step] = None  # the servers' step, if PyTorch's optimizer is used
        self._began = self._over = self._skipped = False
        self._n_made = 0  # number of steps of this round that were not skipped
        # Number of the job's steps, if this member joins after the last one.
        self._train_steps = settings.get("train_steps") or 200
        self._n_done = 0  # _made() when this member ended
        self._torn = False  # whether it ended within a step, so that values are those of two steps
        self._hooks: list[Any] = []

    def _begin(self) -> None:
        tensors = [(name, p, False) for name, p in self.model.named_parameters()
                   if p.requires_grad]
        there = dict(self.model.named_buffers())
        for name in self.buffers:
            if name not in there or not there[name].is_floating_point():
                raise Invalid("the model has no floating-point buffer '%s'" % name)
            tensors.append((name, there[name], True))
        for name, t, average in tensors:
            if t.numel() == 0:  # for example in Linear(8, 0)
                continue
            if t.is_complex():
                raise Invalid("parameter '%s' is complex; the servers have only real ones" % name)
            values = t.detach().to("cpu", torch.float32).contiguous()
            number = self.member.param(name, t.shape, values, keep=0 if average else None)
            self.slots.append(_Slot(number, name, t, average))
        if self._trace:
            self._trace.listen(self.member, [s.name for s in self.slots])
        self._began = True

    def _hook(self) -> None:
        """Adds hooks to all tensors and modules. Must be called when the member has its memory."""
        by_tensor = {id(s.tensor): s for s in self.slots}
        for s in self.slots:
            s.begin(self.member, self.inner is None)
            if not s.average and self.inner is None:
                self._hooks.append(s.tensor.register_post_accumulate_grad_hook(
                    lambda _t, s=s: self._on_gradient(s)))
        compiled = _compiled(self._outer)
        within = {id(m) for c in compiled for m in c.modules() if m is not c}
        for module in self._outer.modules():
            # A compiled module waits for all its parameters at once, because hooks of the modules
            # within would break its graph. MultiheadAttention reads the parameters of out_proj
            # without calling that module.
            whole = module in compiled
            deep = whole or isinstance(module, torch.nn.MultiheadAttention)
            tensors = [*module.parameters(recurse=deep), *module.buffers(recurse=deep)]
            mine = [by_tensor[id(t)] for t in tensors if id(t) in by_tensor]
            if not mine or id(module) in within:
                continue
            if whole and not hasattr(module, "_orig_mod"):
                self._hooks.append(_Before(module, lambda mine=mine: self._need(mine)))
            else:
                self._hooks.append(module.register_forward_pre_hook(
                    lambda _m, _x, mine=mine: self._need(mine)))
        if self._trace:
            self._hooks += self._trace.hooks(self._outer, not compiled)
        self._hooks.append(self.model.register_state_dict_pre_hook(
            lambda *_: self._need(self.slots)))
        for module in self.model.modules():
            self._hooks.append(module._register_load_state_dict_pre_hook(self._refuse_load))

    def _refuse_load(self, *_: Any) -> None:
        raise Invalid("the servers hold the parameters now: load a state dict before the first "
                      "step, or start the servers with --restore")

    def _need(self, slots: Sequence[_Slot]) -> None:
        """Waits for the values of these parameters, before a module reads them."""
        late = [s for s in slots if not s.fresh]
        if not late or self._over or self.step is None or not self.counts:
            return
        if any(s.pushed for s in late):
            self._finish()  # small parameters share a message, so all must be pushed before a wait
        for s in late:
            if not self.counts:
                return
            begin = Trace.now()
            self.counts = self.member.wait(s.number)
            if self.counts:
                self._bring(s)
            if self._trace:
                self._trace.add("wait", "parameters of " + s.name, begin)

    def _bring(self, s: _Slot) -> None:
        s.bring()
        if self._trace:
            self._trace.answered(s.number)

    def _on_gradient(self, s: _Slot) -> None:
        """Handles a parameter's gradient, which backward has computed."""
        if self.step is None:
            raise Invalid("backward() outside of a step; iterate over the exchange")
        s.backwards += 1
        if self._trace:
            self._trace.gradient(s.number)
        if s.backwards < self.backwards or not self.counts or self._skipped:
            return
        if s.pushed:
            raise Invalid("parameter '%s' received a second gradient after the first was sent; set "
                          "the number of backward() calls in a step: backwards=N" % s.name)
        if not s.fresh:
            raise Invalid("parameter '%s' was used without its module's forward, which waits for "
                          "it; set early=False, or pass the module of torch.compile()" %
                          s.name)
        self._push(s)

    def _push(self, s: _Slot) -> None:
        s.check()
        nothing = self._skipped if self.inner is None else self._n_made == 0
        samples = 0 if nothing else (self._round or self.step).n_samples
        source = s.tensor if s.average else s.tensor.grad
        begin = self._trace.push(s.number) if self._trace else 0
        if self.inner is not None:
            values = s.tensor.detach().to("cpu", torch.float32).contiguous()
            self.member.push_values(s.number, values, samples=samples)
        else:
            if source is None:
                s.room.zero_()
            else:
                s.room.copy_(source.detach().to_dense())  # an Embedding's gradient may be sparse
            self.member.push(s.number, samples=samples)
            s.tensor.grad = None
        s.pushed, s.fresh = True, False
        if self._trace:
            self._trace.handed(s.number, begin)

    def _finish(self) -> None:
        """Pushes all that is not pushed yet: parameters without a gradient, and buffers."""
        left = [s for s in self.slots if not s.pushed]
        if self.inner is None and not self._skipped and self.counts and not any(
                s.pushed or s.backwards for s in self.slots):
            raise Invalid("step %d received no gradient. Is backward() called? A DataLoader that "
                          "reads ahead does not fit: use weir.torch.Loader. Call skip() for a "
                          "step that must not count" % self.step.step)
        for s in left:
            # The step did not read this parameter, whose earlier push may still use its array.
            if not s.fresh and self.counts:
                self.counts = self.member.wait(s.number)
                if self.counts:
                    self._bring(s)
        for s in left if self.counts else ():
            self._push(s)

    def skip(self) -> None:
        """Makes this step add nothing, for example because its gradients are not finite. Must be
        called before backward(). A program with a PyTorch optimizer must call it before the next
        step; the optimizer's step() is then not called for this step."""
        if any(s.pushed for s in self.slots):
            raise Invalid("gradients of this step are already being sent")
        self._skipped = True

    def _next_round(self) -> Optional[Step]:
        """Returns the next step of the round. After the last one it pushes the round's result, and
        returns None."""
        done = self.step.step % self.local_steps + 1
        if not self._skipped:
            self.inner.step()
            self._n_made += 1
        self._skipped = False
        self.inner.zero_grad()
        if done < self.local_steps:
            n = self.step.n_samples
            return dataclasses.replace(self.step, step=self.step.step + 1, began=False,
                                       position=self.step.position + n * self.step.stride)
        self._finish()
        return None

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        """Returns the next step. First it pushes zeros for parameters without a gradient in the
        last step."""
        if self._over:
            raise StopIteration
        if not self._began:
            self._begin()
        if self.inner is not None and self.step is not None:
            within = self._next_round()
            if within is not None:
                self.step = within
                return within
        elif self.step is not None:
            self._finish()
        early = self.early and self.inner is None
        begin = Trace.now()
        step = self.member.next(early=early)
        if step is None:
            self._end()
            raise StopIteration
        if self.inner is not None:
            self._check_round(step)
        if not self._hooks:
            self._hook()
        self.step, self.counts, self._skipped, self._n_made = step, True, False, 0
        if self._trace:
            self._trace.task = step.member
            self._trace.begin(step.step)
            self._trace.add("wait", "next step", begin)
        for s in self.slots:
            s.fresh, s.pushed, s.backwards = False, False, 0
            if not early:
                self._bring(s)
            s.tensor.grad = None
        if self.inner is not None:
            h = self.local_steps
            self._round, self.step = step, dataclasses.replace(
                step, step=step.step * h, train_steps=step.train_steps * h,
                n_samples=step.n_samples // h)
        return self.step

    def samples(self, n: Union[int, Sized]) -> list[int]:
        """Returns the numbers, below n or the length of a data set, of the samples in this step's
        batch, [step.n_samples]. Each pass has every sample once, whichever members the job has, in
        an order that depends on the setting `seed` and the pass."""
        if self.step is None:
            raise Invalid("samples can only be set during a step")
        return self.member.samples(self.step, n if isinstance(n, int) else len(n))

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
            if not s.fresh and s.values is not None and not s.moved():
                self._bring(s)
        for hook in self._hooks:
            hook.remove()
        for s in self.slots:
            s.end()
        self._hooks.clear()
        self.step, self._over = None, True
        try:
            if self._trace:
                self._trace.write()
        finally:
            self.member.close()

    def _made(self) -> int:
        """Returns the number of steps that led to the module's values."""
        if self._over:
            return self._n_done
        if self.member.result == "done":
            return self.step.train_steps if self.step is not None else int(self._train_steps)
        if self.step is None:
            return 0
        return self.step.step + (self.counts and any(s.pushed for s in self.slots))

    def _check_round(self, step: Step) -> None:
        """Checks the batch size of a job with a PyTorch optimizer: the servers' batch is that of
        all local steps of a round together."""
        h, batch = self.local_steps, self.batch_size
        if step.n_samples % h or (batch is not None and step.n_samples != h * int(batch)):
            raise Invalid("a round of this job has %d samples of a member, which are not %d "
                          "local_steps%s; set the job's own" % (
                              step.n_samples, h,
                              " of batch_size %s" % batch if batch is not None else ""))

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
        inner = {} if self.inner is None else {"optimizer": copy.deepcopy(self.inner.state_dict())}
        return {"model": model, "step": self._made(), **inner}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads the state of the module, and of a PyTorch optimizer if one is used, before the
        first step. A new job starts at step 0 with the values of the member that joins first. In a
        running job this member resumes at the servers' step, with the servers' values."""
        if self._began:
            self._refuse_load()
        self.model.load_state_dict(state["model"])
        if self.inner is not None and "optimizer" in state:
            self.inner.load_state_dict(state["optimizer"])

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
        """Ends this member before the last step. The servers wait for a new process in its
        place."""
        if not self._over:
            self._end()

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not self._over:
            self.member.__exit__(kind, error, trace)
            self._end()


class Sampler(torch.utils.data.Sampler):
    """Yields the batches of an exchange's steps, for DataLoader(data, batch_sampler=Sampler(...)).
    The loop over the loader makes all steps until the job ends. A member's samples depend on the
    members of the job, so they are known only when a step begins: num_workers must be 0. Use Loader
    to read ahead.

    data: the data set, or the number of its samples."""

    def __init__(self, exchange: Exchange, data: Union[int, Sized]) -> None:
        self.exchange, self.n = exchange, data if isinstance(data, int) else len(data)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in self.exchange:
            yield self.exchange.samples(self.n)
