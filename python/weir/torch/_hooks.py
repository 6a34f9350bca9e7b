"""Finds the modules and tensors that an exchange has to handle, and hooks that can be copied."""
from __future__ import annotations

import functools
import sys
import weakref
from typing import Any, Callable, Optional

import torch

from .._library import Invalid

# Hook in a copy of a module. It ignores all arguments and returns None, and it is a function of
# Python: a saved copy can be loaded where Weir is not installed.
NOTHING = functools.partial(sys.audit, "weir.copied_hook")


class Own:
    """A hook that copies of a module do not get: copy.deepcopy and pickle replace it by NOTHING."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __deepcopy__(self, _memo: Any) -> Any:
        return NOTHING

    def __reduce__(self) -> Any:
        return functools.partial, (NOTHING.func, *NOTHING.args)


class Hook(Own):
    """A hook that calls a method of an exchange, which it does not keep alive."""

    def __init__(self, owner: Any, method: Callable[..., Any], *arguments: Any) -> None:
        self.owner, self.method, self.arguments = weakref.ref(owner), method, arguments

    def __call__(self, *_: Any) -> Any:
        owner = self.owner()
        return None if owner is None else self.method(owner, *self.arguments)


def refuse_load(_exchange: Any) -> None:
    raise Invalid("the servers hold the parameters now: load a state dict before the first "
                  "step, or start the servers with --restore")


def averaged_buffers(model: torch.nn.Module) -> list[str]:
    """Returns the names of the running statistics of normalization layers."""
    return [(prefix + "." if prefix else "") + name for prefix, module in model.named_modules()
            if isinstance(module, torch.nn.modules.batchnorm._NormBase)
            for name in ("running_mean", "running_var") if getattr(module, name) is not None]


def is_compiled(model: torch.nn.Module) -> bool:
    """Returns whether torch.compile() or a module's compile() has compiled the model or a part."""
    return any(hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None
               for m in model.modules())


def floating(model: torch.nn.Module, names: Any) -> list[tuple[str, torch.Tensor]]:
    """Returns the buffers of these names. Raises Invalid unless they are floating-point."""
    there = dict(model.named_buffers())
    for name in names:
        if name not in there or not there[name].is_floating_point():
            raise Invalid("the model has no floating-point buffer '%s'" % name)
    return [(name, there[name]) for name in names]


def within_checkpoint() -> bool:
    """Returns whether the backward that runs now is one of a reentrant activation checkpoint, which
    runs within another backward."""
    frame: Optional[Any] = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "backward" and code.co_filename == _CHECKPOINT:
            return True
        frame = frame.f_back
    return False


_CHECKPOINT = torch.utils.checkpoint.CheckpointFunction.backward.__code__.co_filename
