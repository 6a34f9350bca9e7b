"""The learning rate of each step by a scheduler of PyTorch, as a function of the step's number, so
that all members, and steps that are repeated, have the same rate."""
from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

from .._library import Invalid, note


# Attributes with the number of step() calls in which a scheduler goes through its whole schedule.
LENGTHS = {"OneCycleLR": "total_steps", "CosineAnnealingLR": "T_max", "PolynomialLR": "total_iters"}


def _count(scheduler: Any) -> int:
    """Returns the number of step() calls that a scheduler has had."""
    while not hasattr(scheduler, "last_epoch"):
        scheduler = scheduler._schedulers[0]  # ChainedScheduler
    return int(scheduler.last_epoch)


def _copy(scheduler: Any, optimizer: torch.optim.Optimizer, wrapper: Any) -> tuple[Any, Any]:
    """Returns a copy of the scheduler, and the optimizer of the copy, which has one small parameter
    for each group. wrapper: the optimizer, or an object around it, to which the scheduler
    refers."""
    groups = [{**{k: v for k, v in g.items() if k not in ("params", "lr", "initial_lr")},
               "params": [torch.zeros(1)], "lr": float(g["lr"]),
               **({"initial_lr": float(g["initial_lr"])} if "initial_lr" in g else {})}
              for g in optimizer.param_groups]
    shadow = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    shadow.param_groups = groups
    shadow.defaults = optimizer.defaults
    try:
        return copy.deepcopy(scheduler, {id(optimizer): shadow, id(wrapper): shadow}), shadow
    except Exception as e:
        raise Invalid("the scheduler %s cannot be copied (%s); as scheduler=, pass a function "
                      "of the step's number that returns a factor of the rate" %
                      (type(scheduler).__name__, e)) from e


class Schedule:
    """Factors of the optimizer's learning rates. scheduler: a scheduler, or a function of the
    step's number that returns the factor. bases: rates of the groups without a factor. n_steps:
    number of steps between two calls of the scheduler's step()."""

    def __init__(self, scheduler: Any, optimizer: torch.optim.Optimizer, bases: list[float],
                 n_steps: int) -> None:
        self._scheduler, self._bases, self._every = scheduler, bases, int(n_steps)
        self._function = not hasattr(scheduler, "step")
        self._n_counted = self._n_all = 0  # steps of this process: that counted; all of them
        self._is_compared = False  # whether its length was compared with that of the job
        if self._function:
            if not callable(scheduler):
                raise Invalid("scheduler= needs a scheduler of torch.optim.lr_scheduler, or a "
                              "function of the step's number that returns a factor")
            return
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise Invalid("ReduceLROnPlateau depends on the losses of one member, and the members' "
                          "rates would differ; use a scheduler that depends on the step")
        inner = scheduler
        while not hasattr(inner, "optimizer"):
            inner = inner._schedulers[0]
        if inner.optimizer.param_groups is not optimizer.param_groups:  # it may be a wrapper
            raise Invalid("the scheduler belongs to another optimizer than that of the exchange")
        self._first = _count(scheduler)
        self._copy, self._shadow = _copy(scheduler, optimizer, inner.optimizer)
        self._options = self._now()
        self._factors = [self._next()]

    def _now(self) -> list[dict[str, Any]]:
        ignored = ("params", "lr", "initial_lr")
        return [{k: v for k, v in g.items() if k not in ignored}
                for g in self._shadow.param_groups]

    def _next(self) -> float:
        """Returns the present factor of the copy."""
        found = {g["lr"] / base for g, base in zip(self._shadow.param_groups, self._bases) if base}
        factor = float(max(found))
        if factor - min(found) > 1e-9 * abs(factor):
            raise Invalid("the scheduler changes the rates of the groups by different factors (%g "
                          "and %g); the servers have one factor for all in a step" % (
                              min(found), factor))
        if self._now() != self._options:
            raise Invalid("the scheduler %s also changes other options than the learning rate; "
                          "set cycle_momentum=False" % type(self._scheduler).__name__)
        return factor

    def _compare_length(self, train_steps: int) -> None:
        """Prints a line if the schedule is longer or shorter than the job: its length is often
        computed from the batches of a single process."""
        kind, calls = type(self._scheduler).__name__, train_steps // self._every
        length = getattr(self._scheduler, LENGTHS.get(kind, ""), None)
        if length is not None and not self._is_compared and abs(int(length) - calls) > 1:
            note("the scheduler %s has %s=%d, but the job calls its step() %d times: %s; a step of "
                 "the job has a batch of each member" % (
                     kind, LENGTHS[kind], int(length), calls,
                     "the job ends before the schedule does" if int(length) > calls else
                     "the schedule ends before the job does"))
        self._is_compared = True

    def factor(self, step: int, train_steps: int) -> float:
        """Returns the factor of the step of this number, in a job of train_steps steps."""
        self._compare_length(train_steps)
        if self._function:
            return float(self._scheduler(step))
        n = step // self._every - self._first
        if n < 0:
            raise Invalid("the scheduler has made %d steps, but the job is at step %d; load the "
                          "scheduler's state of that step, or none" % (self._first, step))
        while len(self._factors) <= n:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the optimizer of the copy makes no steps
                self._copy.step()
            self._factors.append(self._next())
        return self._factors[n]

    def made(self, counted: bool) -> None:
        """Records that a step has ended."""
        self._n_all += 1
        self._n_counted += counted

    def check_pace(self) -> None:
        """Raises Invalid unless the program calls the scheduler's step() once in `n_steps` steps.
        It may leave out the call in steps that do not count."""
        if self._function:
            return
        moved = _count(self._scheduler) - self._first
        least, most = self._n_counted // self._every, self._n_all // self._every
        if not least <= moved <= most:
            raise Invalid("the program has called scheduler.step() %d times in %d steps, but the "
                          "exchange expects a call after optimizer.step() in each step; if it is "
                          "called once in N steps, pass scheduler_steps=N" % (moved, self._n_all))
