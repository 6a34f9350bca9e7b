"""Copies gradients to the member's memory, and values from it to the parameters."""
from __future__ import annotations

from typing import Any, Callable, Optional

import torch


class Host:
    """Makes each copy at once."""

    def send(self, s: Any, source: Optional[torch.Tensor], push: Callable[[], None]) -> None:
        """Copies a tensor to the slot's array, and calls push(). source None: copies nothing."""
        if source is not None:
            s.room.copy_(source)
        push()

    def bring(self, s: Any) -> None:
        """Copies the slot's values to its tensor."""
        s.tensor.data.copy_(s.values)
