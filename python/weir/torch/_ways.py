"""The ways in which an exchange trains: by an optimizer of the servers that is chosen by its name,
and by local steps of a PyTorch optimizer. _optimizer.py has a third one."""
from __future__ import annotations

import dataclasses
import functools
from typing import Any, Optional, Sequence

import torch

from .._library import Invalid
from ..member import Step
from . import _hooks
from ._slots import Slot

Named = list[tuple[str, torch.Tensor]]


class Way:
    """Base class. All methods get the exchange, because a reference to it would be a cycle, and
    would delay the end of an exchange that a program drops."""
    in_place = True  # whether parameters may use the member's memory
    early = False  # whether a step begins before its values have arrived
    optimizer: Optional[torch.optim.Optimizer] = None  # the program's own
    local = False  # whether this process makes the optimizer's steps
    may_scale = False  # whether a GradScaler may scale the loss

    def has(self, optimizer: Any) -> bool:
        """Returns whether this optimizer is the program's own, which was passed."""
        return optimizer is self.optimizer

    def may_step(self, _optimizer: torch.optim.Optimizer) -> bool:
        """Returns whether an optimizer's step() may be called."""
        return False

    def may_schedule(self, _scheduler: Any) -> bool:
        """Returns whether a scheduler's step() may be called."""
        return False

    def clips_itself(self, _step: Optional[Step]) -> bool:
        """Returns whether the program may clip gradients before they are used."""
        return self.local

    def settings(self) -> dict[str, Any]:
        """Returns the settings of the job that this way implies."""
        return {}

    def parameters(self, model: torch.nn.Module) -> Named:
        """Returns the parameters that are trained."""
        return [(name, p) for name, p in model.named_parameters() if p.requires_grad]

    def factors(self, _p: torch.Tensor) -> tuple[float, float]:
        """Returns the factors of the job's learning rate and weight decay for a parameter."""
        return 1.0, 1.0

    def attach(self, exchange: Any) -> list[Any]:
        """Adds hooks when the member has its memory, and returns them."""
        return []

    def check_tables(self) -> None:
        """Raises Invalid if modules with tables do not fit this way."""

    def on_rows(self, exchange: Any) -> None:
        """Handles a gradient of rows of a table, which backward has computed."""

    def gradient(self, p: torch.Tensor) -> Optional[torch.Tensor]:
        """Returns a parameter's gradient in this step; None: it has none."""
        return p.grad

    def push(self, exchange: Any, s: Slot) -> None:
        """Pushes a parameter's gradient."""
        samples = 0 if exchange._skipped else exchange.step.n_samples
        source = s.tensor if s.average else self.gradient(s.tensor)
        push = functools.partial(exchange.member.push, s.number, samples=samples)
        if exchange._skipped:
            source = None
        elif source is not None:
            source = source.detach().to_dense()  # an Embedding's gradient may be sparse
        elif exchange.step.n_regions == 0:
            # If no member has a gradient, the parameter and its state stay.
            push = functools.partial(push, None)
        else:
            s.room.zero_()  # servers of a region need a gradient
        exchange._copies.send(s, source, push)

    def end_step(self, exchange: Any) -> Optional[Step]:
        """Ends a step: pushes all that is not pushed yet. Returns the next step of a round, if it
        does not end."""
        exchange._finish()
        return None

    def begin_step(self, exchange: Any, step: Step) -> Step:
        """Begins a step of the servers, and returns it as a step of the program."""
        return step


class ByName(Way):
    """The servers' optimizer. Each gradient is pushed as soon as backward has computed it."""

    def __init__(self, name: str, backwards: int, early: bool, later: Sequence[str]) -> None:
        self.name, self.backwards, self.early, self.later = name, backwards, early, tuple(later)
        self.n_ended = 0  # number of backward() calls of this step that have ended
        self._queued = False  # whether backward will call _ended()
        self._nested = False  # whether reentrant activation checkpoints ran backward

    def settings(self) -> dict[str, Any]:
        return {"optimizer": self.name}

    def parameters(self, model: torch.nn.Module) -> Named:
        there = dict(model.named_parameters())
        for name in self.later:
            if name not in there:
                raise Invalid("later=: the model has no parameter '%s'" % name)
        return [(name, p) for name, p in there.items() if p.requires_grad or name in self.later]

    def attach(self, exchange: Any) -> list[Any]:
        made = []
        for s in exchange.slots:
            if not s.average:
                required = s.tensor.requires_grad
                s.tensor.requires_grad_(True)  # only then PyTorch accepts a hook
                made.append(s.tensor.register_post_accumulate_grad_hook(
                    _hooks.Hook(exchange, self._on_gradient, s)))
                s.tensor.requires_grad_(required)
        if not self.early:
            return made
        by_tensor = {id(s.tensor): s for s in exchange.slots}
        for module in exchange._outer.modules():
            # MultiheadAttention reads the parameters of out_proj without calling that module.
            deep = isinstance(module, torch.nn.MultiheadAttention)
            tensors = [*module.parameters(recurse=deep), *module.buffers(recurse=deep)]
            mine = [by_tensor[id(t)] for t in tensors if id(t) in by_tensor]
            if mine:
                made.append(module.register_forward_pre_hook(
                    _hooks.Hook(exchange, type(exchange)._need, mine)))
        made.append(exchange.model.register_state_dict_pre_hook(
            _hooks.Hook(exchange, type(exchange)._need, exchange.slots)))
        return made

    def begin_step(self, exchange: Any, step: Step) -> Step:
        self.n_ended, self._queued, self._nested = 0, False, False
        for s in exchange.slots:
            s.tensor.grad = None  # of a step that did not count
        return step

    def push(self, exchange: Any, s: Slot) -> None:
        super().push(exchange, s)
        s.tensor.grad = None

    def _on_gradient(self, exchange: Any, s: Slot) -> None:
        """Handles a parameter's gradient, which backward has computed."""
        if exchange.step is None:
            raise Invalid("backward() outside of a step; iterate over the exchange")
        s.backwards += 1
        if exchange._trace:
            exchange._trace.gradient(s.number)
        self.on_rows(exchange)
        if s.backwards < self.backwards or not exchange.counts or exchange._skipped:
            return
        if s.pushed:
            raise Invalid("parameter '%s' received another gradient after the step's gradients "
                          "were sent; set the number of backward() calls in a step: backwards=N" %
                          s.name)
        if not s.fresh:
            raise Invalid("parameter '%s' was used without its module's forward, which waits for "
                          "it; remove early=True" % s.name)
        exchange._push(s)

    def on_rows(self, exchange: Any) -> None:
        """Makes backward call _ended() when it has computed all gradients."""
        if not self.early and not self._queued:
            if _hooks.within_checkpoint():  # the outer backward has not ended with this one
                self._nested = True
            else:
                self._queued = True
                torch.autograd.Variable._execution_engine.queue_callback(
                    _hooks.Hook(exchange, self._ended))

    def _ended(self, exchange: Any) -> None:
        """Ends the last backward of a step: pushes all that is left, and waits for all values of
        the next step, so that the program never reads a mix of two steps."""
        self._queued = False
        self.n_ended += 1
        if self.n_ended >= self.backwards and exchange.step is not None and exchange.counts:
            exchange._finish()
            exchange._need(exchange.slots)

    def end_step(self, exchange: Any) -> Optional[Step]:
        if self._nested and not self.n_ended and not self.early:
            raise Invalid("all gradients of step %d are those of reentrant activation checkpoints, "
                          "which hide the end of backward; use checkpoint(..., "
                          "use_reentrant=False), or early=True" % exchange.step.step)
        if not exchange._skipped and exchange.counts and not any(
                s.pushed or s.backwards for s in exchange.slots) and not any(
                t.gradients for t in exchange.tables):
            raise Invalid("step %d received no gradient. Is backward() called? A DataLoader that "
                          "reads ahead does not fit: use weir.torch.Loader. Call skip() for a "
                          "step that must not count" % exchange.step.step)
        return super().end_step(exchange)


class LocalSteps(Way):
    """Each member makes the steps of a round by a PyTorch optimizer, then the servers average the
    changes (DiLoCo)."""
    in_place = False
    local = True

    def __init__(self, optimizer: torch.optim.Optimizer, n_steps: int, batch_size: Any) -> None:
        self.optimizer, self.n_steps, self.batch_size = optimizer, n_steps, batch_size
        self.stepping = False  # whether the exchange calls the optimizer's step()
        self._round: Optional[Step] = None  # the servers' step
        self._n_made = 0  # number of steps of this round that were not skipped

    def settings(self) -> dict[str, Any]:
        return {"own_local_steps": True}

    def check_tables(self) -> None:
        raise Invalid("local_steps= does not fit tables (weir.torch.Embedding, EmbeddingBag), "
                      "whose rows only the servers' optimizer changes; remove local_steps")

    def may_step(self, optimizer: torch.optim.Optimizer) -> bool:
        return optimizer is self.optimizer and self.stepping

    def may_schedule(self, scheduler: Any) -> bool:
        return scheduler.optimizer is self.optimizer

    def push(self, exchange: Any, s: Slot) -> None:
        exchange._copies.send(s, s.tensor.detach(), functools.partial(
            exchange.member.push_values, s.number, s.room,
            samples=self._round.n_samples if self._n_made else 0))

    def end_step(self, exchange: Any) -> Optional[Step]:
        step = exchange.step
        if not exchange._skipped:
            self.stepping = True
            try:
                self.optimizer.step()
            finally:
                self.stepping = False
            self._n_made += 1
        exchange._skipped = False
        self.optimizer.zero_grad()
        if step.step % self.n_steps + 1 < self.n_steps:
            return dataclasses.replace(step, step=step.step + 1, began=False,
                                       position=step.position + step.n_samples * step.stride)
        exchange._finish()
        return None

    def begin_step(self, exchange: Any, step: Step) -> Step:
        h = self.n_steps
        self.check_round(step)
        self._round, self._n_made = step, 0
        for s in exchange.slots:
            s.tensor.grad = None
        return dataclasses.replace(step, step=step.step * h, train_steps=step.train_steps * h,
                                   n_samples=step.n_samples // h)

    def check_round(self, step: Step) -> None:
        """Checks the batch size of a job with a PyTorch optimizer: the servers' batch is that of
        all local steps of a round together."""
        h, batch = self.n_steps, self.batch_size
        if step.n_samples % h or (batch is not None and step.n_samples != h * int(batch)):
            raise Invalid("in a round of this job each member trains on %d samples, but "
                          "local_steps=%d%s does not match this; set the values of the job" % (
                              step.n_samples, h,
                              " with batch_size=%s" % batch if batch is not None else ""))


