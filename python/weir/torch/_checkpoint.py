"""Loads checkpoints of servers into modules."""
from __future__ import annotations

import warnings
from typing import Any

import torch

from .. import checkpoint as _checkpoint
from .._library import Error


def load_checkpoint(path: str, model: torch.nn.Module) -> dict[str, Any]:
    """Loads a checkpoint of the servers into the model's parameters, by their names. path: a
    manifest, or a folder, of which it loads the newest checkpoint.

    Returns a dict. "step": number of steps made. "optimizer", if the job's optimizer was adam or
    adamw: {"state"} with the moments, for PyTorch's Adam or AdamW over model.parameters(). Its
    learning rate and other settings are not in the checkpoint:

        rule.load_state_dict({**rule.state_dict(), **found["optimizer"]})

    Raises Error if the checkpoint is not whole or belongs to another model. Only tensors that
    require no gradient may be missing in it. It loads no rows of sparse tables: a warning names the
    tables of the checkpoint, and weir.checkpoint.read() returns their rows."""
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
    if found.tables:
        warnings.warn("weir: load_checkpoint loads the parameters only, not the rows of %s; "
                      "weir.checkpoint.read(path).tables has them" % ", ".join(
                          "table '%s'" % name for name in found.tables), stacklevel=2)
    for i, (name, p) in enumerate(parameters):
        if name in found.slots and found.job["optimizer"]["name"] in ("adam", "adamw"):
            first, second = (tensor(v, p) for v in found.slots[name])
            moments[i] = {"step": torch.tensor(float(found.updates[name])), "exp_avg": first,
                          "exp_avg_sq": second}
    return {"step": found.step, "position": found.position, "optimizer": {"state": moments}}
