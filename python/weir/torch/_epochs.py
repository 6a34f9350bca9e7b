"""Passes over a data set, for scripts with a loop over epochs."""
from __future__ import annotations

from typing import Any, Iterator, Optional

from .._library import Invalid
from ..member import Step
from ._loader import positions


class Epochs:
    """Private iterator of Exchange.epochs(). It begins the first step of a pass, which the exchange
    then passes to the loop over the steps, and that loop ends with the last step of the pass."""

    def __init__(self, exchange: Any, n: int) -> None:
        if n < 1:
            raise Invalid("epochs() of a data set without samples")
        self._exchange, self._n = exchange, n
        self._first: Optional[Step] = None  # first step of a pass, which no loop has received yet

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        """Returns the number of the next step's pass."""
        exchange = self._exchange
        exchange._epochs = None  # the next step may be one of another pass
        self._first = next(exchange, None)
        if self._first is None:
            raise StopIteration
        exchange._epochs = self
        return _begin(self._first, exchange.local_steps) // self._n

    def take(self) -> Optional[Step]:
        """Returns the step that this pass begins with, once, and then None for each further one.
        Raises StopIteration after the last step of the pass."""
        first, self._first = self._first, None
        if first is None and self._exchange.counts and self.steps_left(most=2) == 1:
            raise StopIteration
        return first

    def steps_left(self, most: Optional[int] = None) -> int:
        """Returns the number of the pass' steps that have not ended, at least 1. Counts up to
        `most`."""
        step, h = self._exchange.step, self._exchange.local_steps
        begin = _begin(step, h)
        number, offset, left = begin // self._n, step.position - begin, 0
        for place in positions(step, h):
            if (place.start - offset) // self._n != number or left == most:
                break
            left += 1
        return left


def _begin(step: Step, local_steps: int) -> int:
    """Returns the position of the first sample of all members in a step, or, with local steps, of
    this member."""
    before = step.rank * step.n_samples * step.stride if local_steps == 1 else 0
    return step.position - before
