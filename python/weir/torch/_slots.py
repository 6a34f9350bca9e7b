"""A tensor of a module, and its place in the member's memory."""
from __future__ import annotations

from typing import Any, Optional

import torch

from .._library import Invalid
from ..member import Member
from ._device import Host


class Slot:
    """A parameter, or a buffer that is averaged. If the program itself changes a parameter, the
    change is lost at the next step, because the servers have the parameter: changed() finds it."""

    def __init__(self, number: int, name: str, tensor: torch.Tensor, average: bool) -> None:
        self.number, self.name, self.tensor, self.average = number, name, tensor, average
        # Arrays of the member for values and gradient, float32 of the tensor's shape; None before
        # begin().
        self.values = self.room = None
        self.in_place = False  # whether the tensor's memory is `values`
        self._device = tensor.device
        self.fresh = False  # whether the tensor has the values of this step, or of the next one
        self.pushed = False  # whether this step's gradient was pushed
        self.backwards = 0  # number of gradients that backward has computed in this step
        self._version = 0  # PyTorch's count of in-place changes when the values arrived
        self._sum: Optional[int] = None  # checksum of the values when they arrived
        self._words: Any = ()  # the values as integers, for the checksum

    def begin(self, member: Member, in_place: bool) -> None:
        """Finds the member's arrays. in_place: the tensor may use the array of its values as its
        memory, if its type permits that."""
        def view(name: str) -> torch.Tensor:
            flat = torch.frombuffer(member._view(name, self.number, True), dtype=torch.float32)
            return flat.view(self.tensor.shape)
        t = self.tensor
        self._device = t.device
        self.values, self.room = view("weir_values"), view("weir_gradient")
        self.in_place = (in_place and not self.average and t.dtype == torch.float32 and
                         t.device.type == "cpu" and t.is_contiguous())
        if self.in_place:
            t.data = self.values
            flat, even = self.values.view(-1), self.values.numel() & ~1
            # PyTorch adds int64 much faster than int32.
            self._words = [w for w in (flat[:even].view(torch.int64), flat[even:].view(torch.int32))
                           if w.numel()]

    def moved(self) -> bool:
        """Returns whether the tensor was assigned other memory than the member's, in which new
        values arrive."""
        return self.in_place and self.tensor.data_ptr() != self.values.data_ptr()

    def check(self) -> None:
        if self.moved() or self.tensor.device != self._device:
            raise Invalid("parameter '%s' has new memory since the first step (by .to(), "
                          ".double(), or assigned .data), and receives no values there; do that "
                          "before the first step, and copy values in place later" % self.name)

    def bring(self, copies: Host) -> None:
        """Copies the values, which have arrived, to the tensor, unless the tensor uses the member's
        memory."""
        self.check()
        if not self.in_place:
            copies.bring(self)
        self.fresh = True
        self._version = self.tensor._version
        self._sum = self._checksum() if self.in_place else None

    def _checksum(self) -> int:
        return sum(w.sum().item() for w in self._words)

    def changed(self, thorough: bool) -> bool:
        """Returns whether the program has changed the parameter's values since they arrived. Values
        that were changed and then restored count as unchanged. thorough: also finds changes that
        PyTorch does not count, such as those of `.data`."""
        if self.average or self.values is None or not (
                thorough or self.tensor._version != self._version):
            return False
        if not self.fresh:  # the values are in flight, so there is nothing to compare with
            return self.tensor._version != self._version
        if self.in_place:
            equal = not self.moved() and self._checksum() == self._sum
        else:
            now = self.tensor.detach()
            equal = torch.equal(now, torch.empty_like(now).copy_(self.values))
        if equal:
            self._version = self.tensor._version
        return not equal

    def end(self) -> None:
        """Copies the values to memory of the tensor's own, which stays when the member has
        ended."""
        if self.values is not None and self.in_place and not self.moved():
            self.tensor.data = self.values.clone()
        self.values = self.room = None
