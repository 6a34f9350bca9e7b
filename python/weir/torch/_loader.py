"""Batches of an exchange's steps for PyTorch's DataLoader."""
from __future__ import annotations

import collections
from typing import Any, Iterator, Sized, Union

import torch

from .._library import Invalid
from ..member import Step


def positions(step: Step, local_steps: int) -> Iterator[range]:
    """Yields the positions of this member's samples in `step` and in each following step. They are
    right in mode `sync`, as long as no member joins or leaves."""
    n, at = step.n_samples * step.stride, step.position
    for i in range(step.step, step.train_steps):
        yield range(at, at + n, step.stride)
        # The samples of a member in the steps of one round lie side by side.
        last = (i + 1) % local_steps == 0
        at += n * (1 + (step.n_members - 1) * local_steps) if last else n


class Loader:
    """Yields the batch of each step of the job, which PyTorch's worker processes read ahead. The
    loop makes all steps until the job ends:

        for x, y in weir.torch.Loader(exchange, data, num_workers=2):
            loss_of(model(x), y).backward()

    When members join or leave, the samples are divided again. The loader then drops the batches
    that it has read ahead, and reads the new ones, so each sample still counts once. In modes other
    than `sync` the samples of a step are known only when the step begins, so nothing is read ahead.

    data: a data set that has a length. settings: those of torch.utils.data.DataLoader, except the
    ones that choose samples and their order (batch_size, shuffle, sampler, drop_last,
    in_order=False). Processes are started by `forkserver` unless multiprocessing_context is set,
    since a program with open connections must not be forked. So the data set is pickled, and the
    script needs `if __name__ == "__main__":`."""

    def __init__(self, exchange: Any, data: Any, **settings: Any) -> None:
        if not settings.get("in_order", True):
            raise Invalid("in_order=False would mix batches of different steps; remove it")
        self.exchange, self.n = exchange, len(data)
        self.restarts = 0  # number of times that batches were dropped
        self._known_ahead = bool(settings.get("num_workers"))
        self._asked: collections.deque[list[int]] = collections.deque()
        if settings.get("num_workers"):
            settings = {"multiprocessing_context": "forkserver", "persistent_workers": True,
                        **settings}
        self._loader = torch.utils.data.DataLoader(data, batch_sampler=_Ahead(self), **settings)
        self._batches: Union[Iterator[Any], None] = None
        self._peeked: list[Any] = []  # the batch of the next step, after next_batch()

    def next_batch(self) -> Any:
        """Returns the batch of the next step, if no member joins or leaves before, for
        Exchange.reads(). Returns None after the last step, and if nothing is read ahead."""
        if not self._known_ahead or self._batches is None:
            return None
        if not self._peeked:
            self._peeked.append(next(self._batches, None))
        return self._peeked[0]

    def _ahead(self) -> Iterator[list[int]]:
        """Yields the samples of each step to read, beginning with the current step."""
        exchange = self.exchange
        for place in positions(exchange.step, exchange.local_steps):
            items = [exchange.member.sample(self.n, position) for position in place]
            self._asked.append(items)
            yield items
            if not self._known_ahead:
                return

    def __iter__(self) -> Iterator[Any]:
        for step in self.exchange:
            items = self.exchange.samples(self.n)
            if not self._asked or self._asked[0] != items:
                if self._batches is not None and self._known_ahead:
                    self.restarts += 1
                    self._known_ahead = step.began  # otherwise servers assign them one by one
                self._asked.clear()
                self._peeked.clear()
                self._batches = iter(self._loader)
            batch = self._peeked.pop() if self._peeked else next(self._batches)
            self._asked.popleft()
            yield batch
        if self.exchange.step is None:  # otherwise a pass of Exchange.epochs() has ended
            self._batches = None


class _Ahead:
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[list[int]]:
        return self.loader._ahead()


class Sampler(torch.utils.data.Sampler):
    """Yields the batches of an exchange's steps, for DataLoader(data, batch_sampler=Sampler(...)).
    The loop over the loader makes all steps until the job ends, or those of a pass if it is in a
    loop over Exchange.epochs(). A member's samples depend on the
    members of the job, so they are known only when a step begins: num_workers must be 0. Use Loader
    to read ahead.

    data: the data set, or the number of its samples."""

    def __init__(self, exchange: Any, data: Union[int, Sized]) -> None:
        self.exchange, self.n = exchange, data if isinstance(data, int) else len(data)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in self.exchange:
            yield self.exchange.samples(self.n)

    def __len__(self) -> int:
        """Returns the number of the job's steps, which a member that joins later makes a part of.
        In a pass of Exchange.epochs(), returns the number of steps that the pass still has."""
        epochs = self.exchange._epochs
        return epochs.steps_left() if epochs else self.exchange.train_steps
