"""with_tables: tables in the place of PyTorch's embeddings of a model."""
from __future__ import annotations

import math
import warnings
from typing import Any, Optional

import torch

from .._library import Invalid
from ._tables import REFUSED, Embedding, EmbeddingBag


def with_tables(model: torch.nn.Module, min_rows: Optional[int] = None,
                **settings: Any) -> torch.nn.Module:
    """Replaces each torch.nn.Embedding and EmbeddingBag of the model that has sparse=True by a
    module with a table, and returns the model. Call it before optimizers are made, because the rows
    are no parameters of the new modules. min_rows: instead of those with sparse=True, modules with
    at least so many rows are replaced.

    A table has the module's path in the model as its name, num_embeddings as max_rows, and these
    settings (those of Embedding). Without init and init_scale its rows begin with normal values of
    deviation 1, like the weights of PyTorch's modules. The weights themselves are not used; a
    warning names those of another deviation. Raises Invalid if no module is replaced, or a table
    cannot do what a module does."""
    if not {"init", "init_scale"} & settings.keys():
        settings["init_scale"] = 1.0
    made: dict[int, torch.nn.Module] = {}
    paths = {id(m): path for path, m in model.named_modules()}
    for parent in list(model.modules()):
        for name, m in list(parent.named_children()):
            if isinstance(m, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and (
                    m.sparse if min_rows is None else m.num_embeddings >= min_rows):
                if id(m) not in made:
                    made[id(m)] = _replacement(m, paths[id(m)], settings)
                setattr(parent, name, made[id(m)])
    if not made:
        raise Invalid("with_tables: the model has no Embedding or EmbeddingBag with %s" % (
            "sparse=True; set it in those that are to have tables, or min_rows=0 to replace all"
            if min_rows is None else "at least min_rows=%d rows" % min_rows))
    return model


def _replacement(m: Any, path: str, settings: dict[str, Any]) -> torch.nn.Module:
    used = {"padding_idx": m.padding_idx is not None, "max_norm": m.max_norm is not None,
            "scale_grad_by_freq": m.scale_grad_by_freq, "dtype": m.weight.dtype != torch.float32}
    for name, is_used in used.items():
        if is_used:
            raise Invalid("with_tables: '%s': a table has no %s: %s" % (path, name, REFUSED[name]))
    _compare_deviations(m.weight.detach(), path, settings)
    if isinstance(m, torch.nn.Embedding):
        return Embedding(m.num_embeddings, m.embedding_dim, name=path, **settings)
    return EmbeddingBag(m.num_embeddings, m.embedding_dim, name=path, mode=m.mode,
                        include_last_offset=m.include_last_offset, **settings)


def _compare_deviations(weight: torch.Tensor, path: str, settings: dict[str, Any]) -> None:
    """Warns if the weights have another deviation than the initial rows of the table."""
    scale = float(settings.get("init_scale", 1 / math.sqrt(weight.shape[1])))
    rows = {"zeros": 0.0, "uniform": scale / math.sqrt(3)}.get(settings.get("init", ""), scale)
    found = weight.square().mean().sqrt().item()
    chance = 4 / math.sqrt(2 * weight.numel())  # 4 deviations of the estimate of a deviation
    if abs(found - rows) > (0.05 + chance) * rows:
        warnings.warn("weir: with_tables: the weights of '%s' have a deviation of %.3g, but the "
                      "rows of its table begin with %.3g; set init and init_scale" %
                      (path, found, rows), stacklevel=4)
