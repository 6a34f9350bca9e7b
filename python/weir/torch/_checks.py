"""Checks that the program has not changed the model in a way that is lost with servers."""
from __future__ import annotations

import torch

from .._library import Invalid
from ._slots import Slot

# Changes by `.data`, which PyTorch does not count, and new parameters are searched for in the first
# steps of an exchange, then once in a number of steps, and in the job's last step.
FIRST, EVERY = 3, 64


class Checks:
    """The checks of one exchange. n_steps: number of steps that it has begun. is_last: the present
    step is the job's last one."""

    def __init__(self, model: torch.nn.Module, slots: list[Slot]) -> None:
        self.n_steps, self.is_last = 0, False
        self._slots = [s for s in slots if not s.average]
        trained = {id(s.tensor) for s in slots}
        self._left_out = [(name, p) for name, p in model.named_parameters()
                          if id(p) not in trained]
        self._frozen = [(name, p) for name, p in self._left_out if not p.requires_grad]
        self._known = trained | {id(p) for _, p in self._left_out}

    def _thorough(self) -> bool:
        return self.is_last or self.n_steps <= FIRST or self.n_steps % EVERY == 0

    def values(self, slots: list[Slot]) -> None:
        """Raises Invalid if the program has changed the values of one of these parameters."""
        thorough = self._thorough()
        for s in slots:
            s.check()
            if s.changed(thorough):
                raise Invalid(
                    "the program has changed parameter '%s' itself (by clamp_, max_norm of an "
                    "Embedding, values that were copied into it, or the like), which would be "
                    "lost: the servers have the parameter. Restore its values before the next "
                    "step, or make the change a part of forward (torch.nn.utils.parametrize)" %
                    s.name)

    def step(self, model: torch.nn.Module) -> None:
        """Makes all checks, at the end of a step."""
        self.values(self._slots)
        for name, p in self._frozen:
            if p.requires_grad:
                raise Invalid("parameter '%s' required no gradient when training began, so the "
                              "servers do not have it, and it would stay as it is; name it: "
                              "Exchange(..., later=['%s'])" % (name, name))
        if self._thorough():
            for name, p in model.named_parameters():
                if id(p) not in self._known:
                    raise Invalid("parameter '%s' was added or replaced after the first step, and "
                                  "the servers do not have it; build the whole model first" %
                                  name)
