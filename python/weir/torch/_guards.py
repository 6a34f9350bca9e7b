"""Guards of calls that would do nothing, or something else, for parameters that servers train. They
raise Invalid with the replacement. Other parameters are not affected."""
from __future__ import annotations

import functools
import inspect
import types
import warnings
import weakref
from typing import Any, Callable, Iterable, Optional

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .._library import Invalid

_owners: dict[int, Any] = {}  # id of a parameter: weak reference to its exchange
_active: "weakref.WeakSet[Any]" = weakref.WeakSet()  # exchanges that have begun, and not ended
_warned: "weakref.WeakSet[Any]" = weakref.WeakSet()  # optimizers of which a warning was printed
_installed = False
_scaled: "weakref.WeakSet[Any]" = weakref.WeakSet()  # GradScalers whose first loss was checked


def watch(exchange: Any) -> None:
    """Guards the parameters of an exchange until it ends."""
    of = weakref.ref(exchange)
    _owners.update({id(s.tensor): of for s in exchange.slots if not s.average})
    _active.add(exchange)
    _install()


def release(exchange: Any) -> None:
    _active.discard(exchange)
    for s in exchange.slots:
        of = _owners.get(id(s.tensor))
        if of is not None and of() in (None, exchange):
            del _owners[id(s.tensor)]


def owner(tensors: Iterable[Any]) -> Optional[Any]:
    """Returns the exchange of the first of these parameters that has one."""
    for t in tensors:
        of = _owners.get(id(t))
        exchange = of() if of is not None else None
        if exchange is not None and exchange.trains(t):
            return exchange
    return None


def _parameters(optimizer: Any) -> Iterable[Any]:
    return (p for g in getattr(optimizer, "param_groups", ()) for p in g["params"])


def _check_outside(optimizer: Any) -> None:
    """Refuses the step of an optimizer over parameters of an exchange's model that the servers do
    not have; warns of one over other parameters."""
    kind, mine = type(optimizer).__name__, {id(p) for p in _parameters(optimizer)}
    for exchange in list(_active):
        for name, p in exchange.model.named_parameters():
            if id(p) in mine:
                raise Invalid("step() of a %s that has parameter '%s' of the exchange's model; the "
                              "servers do not have it, and each member would train it by itself. "
                              "Pass all optimizers, Exchange(model, optimizer=[first, second]), or "
                              "make an exchange with servers of its own for each network" % (
                                  kind, name))
    if any(e.step is not None and e.step.generation for e in _active):
        _warned.add(optimizer)
        warnings.warn("weir: step() of a %s over parameters that no exchange trains: each member "
                      "of the job trains them by itself" % kind, stacklevel=4)


def _before_step(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    exchange = owner(_parameters(optimizer))
    if exchange is None:
        if optimizer not in _warned:
            _check_outside(optimizer)
        return
    if exchange._way.may_step(optimizer):
        return
    if exchange._way.has(optimizer):
        raise Invalid("the exchange calls step() of this optimizer itself; remove the call")
    raise Invalid("step() of a %s whose parameters an exchange trains; remove the optimizer, or "
                  "pass it: Exchange(model, optimizer=optimizer)" % type(optimizer).__name__)


def _before_scheduler(scheduler: Any) -> None:
    exchange = owner(_parameters(getattr(scheduler, "optimizer", None)))
    if exchange is not None and not exchange._way.may_schedule(scheduler):
        raise Invalid("%s.step() does not reach the servers, which have the learning rate; pass "
                      "the optimizer and the scheduler, Exchange(model, optimizer=optimizer, "
                      "scheduler=scheduler), or use the settings lr_schedule and lr_warmup_steps" %
                      type(scheduler).__name__)


def _clip(parameters: Any, setting: str, bound: float, norm_type: float = 2.0) -> bool:
    """Returns whether a call that clips gradients must change nothing, because the servers clip
    with the same bound."""
    exchange = owner(parameters)
    if exchange is None or exchange._way.clips_itself(exchange.step):
        return False
    if float(bound) == float("inf"):
        return True  # the call only computes the norm
    have = exchange.settings.get(setting)
    if have is not None and float(have) == float(bound) and norm_type == 2.0:
        return True
    if setting == "clip_norm" and exchange.tables:
        raise Invalid("the gradients of one member are clipped before the servers average them, "
                      "and the norm would lack the gradients of the model's tables; remove "
                      "clip_grad_norm_, and set Exchange(..., clip_value=C), by which the servers "
                      "clip each element of the mean")
    raise Invalid("the gradients of one member are clipped before the servers average them; "
                  "remove clip_grad_*, and set Exchange(..., %s=%g), by which the servers clip the "
                  "mean%s" % (setting, bound, "" if norm_type == 2.0 else " by the 2-norm"))


def _clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    from weir.torch import _guards
    return _guards.clip_norm(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def _clip_grad_value_(parameters, clip_value, foreach=None):
    from weir.torch import _guards
    return _guards.clip_value(parameters, clip_value, foreach)


def _clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    from weir.torch import _guards
    return _guards.clip_by_norm(parameters, max_norm, total_norm, foreach)


def _several(parameters: Any) -> list[Any]:
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)


def clip_norm(parameters: Any, max_norm: float, norm_type: float, *more: Any) -> Any:
    """Replaces torch.nn.utils.clip_grad_norm_. Returns the norm of this member's gradients."""
    parameters = _several(parameters)
    if _clip(parameters, "clip_norm", max_norm, float(norm_type)):
        return torch_clip_norm(parameters, float("inf"), norm_type, *more)
    return torch_clip_norm(parameters, max_norm, norm_type, *more)


def clip_value(parameters: Any, value: float, foreach: Any) -> None:
    parameters = _several(parameters)
    if not _clip(parameters, "clip_value", value):
        torch_clip_value(parameters, value, foreach)


def clip_by_norm(parameters: Any, max_norm: float, total_norm: Any, foreach: Any) -> None:
    parameters = _several(parameters)
    if not _clip(parameters, "clip_norm", max_norm):
        torch_clip_by_norm(parameters, max_norm, total_norm, foreach)


torch_clip_norm: Any = None  # PyTorch's functions, once they are replaced
torch_clip_value: Any = None
torch_clip_by_norm: Any = None


def _replace(function: Any, by: Any) -> Any:
    """Replaces the code of a function of PyTorch, so that programs that have imported the function
    by its name call the replacement. Returns a function with the former code."""
    inner = inspect.unwrap(function)
    former = types.FunctionType(inner.__code__, inner.__globals__, inner.__name__,
                                inner.__defaults__, inner.__closure__)
    inner.__code__, inner.__defaults__ = by.__code__, by.__defaults__
    return torch.no_grad()(former)


def _wrap(kind: Any, name: str, around: Callable[..., Any]) -> None:
    """Replaces a method: calls around(method, self, ...)."""
    method = kind.__dict__.get(name)
    if method is not None:
        @functools.wraps(method)
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            return around(method, self, *args, **kwargs)
        setattr(kind, name, wrapped)


def _scheduler_step(method: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    _before_scheduler(scheduler)
    return method(scheduler, *args, **kwargs)


def _scale(method: Any, scaler: Any, outputs: Any) -> Any:
    if scaler.is_enabled() and scaler not in _scaled:
        losses = [outputs] if isinstance(outputs, torch.Tensor) else []
        exchange = owner(_leaves(losses))
        if exchange is not None and exchange.tables:
            raise Invalid("GradScaler.scale(loss) would send scaled gradients of rows to the "
                          "servers, because unscale_() does not reach the tables of "
                          "weir.torch.Embedding and EmbeddingBag; use bfloat16 without a "
                          "GradScaler")
        if exchange is not None and not exchange._way.may_scale:
            raise Invalid("GradScaler.scale(loss) would send scaled gradients to the servers; pass "
                          "the optimizer that scaler.step() gets: Exchange(model, "
                          "optimizer=optimizer), or use bfloat16 without a GradScaler")
        _scaled.add(scaler)
    return method(scaler, outputs)


def _scaler_step(method: Any, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    found = method(scaler, optimizer, *args, **kwargs)
    exchange = owner(_parameters(optimizer))
    if exchange is not None and exchange._way.has(optimizer):
        exchange._way.scaler_skipped(exchange)
    return found


def _leaves(losses: Iterable[Any]) -> Iterable[Any]:
    """Yields the parameters that losses were computed from."""
    todo, seen = [t.grad_fn for t in losses if t.grad_fn is not None], set()
    while todo:
        node = todo.pop()
        if hasattr(node, "variable"):
            yield node.variable
        for more, _ in node.next_functions:
            if more is not None and more not in seen:
                seen.add(more)
                todo.append(more)


def _install() -> None:
    """Installs the guards in PyTorch, once in a process."""
    global _installed, torch_clip_norm, torch_clip_value, torch_clip_by_norm
    if _installed:
        return
    _installed = True
    register_optimizer_step_pre_hook(_before_step)
    schedulers = torch.optim.lr_scheduler
    for kind in {getattr(schedulers, "LRScheduler", schedulers._LRScheduler),
                 schedulers.ReduceLROnPlateau}:
        _wrap(kind, "step", _scheduler_step)
    clip = torch.nn.utils.clip_grad
    torch_clip_norm = _replace(clip.clip_grad_norm_, _clip_grad_norm_)
    torch_clip_value = _replace(clip.clip_grad_value_, _clip_grad_value_)
    if hasattr(clip, "_clip_grads_with_norm_"):
        torch_clip_by_norm = _replace(clip._clip_grads_with_norm_, _clip_grads_with_norm_)
    scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    _wrap(scaler, "scale", _scale)
    _wrap(scaler, "step", _scaler_step)
