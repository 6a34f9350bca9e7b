"""A DataLoader whose batches are those of an exchange's steps, read ahead."""
from __future__ import annotations

import collections
from typing import Any, Iterator, Union

import torch

from ._library import Invalid
from .member import Step


def positions(step: Step, local_steps: int) -> Iterator[range]:
    """Those of this member's samples in the step and in the next ones, as long as nobody comes or
    goes, where members go in step (`sync`)."""
    n, at = step.n_samples * step.stride, step.position
    for i in range(step.step, step.train_steps):
        yield range(at, at + n, step.stride)
        last = (i + 1) % local_steps == 0  # of a round, whose samples lie side by side
        at += n * (1 + (step.n_members - 1) * local_steps) if last else n


class Loader:
    """The job's steps, each with its batch of a data set, which PyTorch's worker processes have
    read ahead; who iterates over it makes the steps, to the job's end:

        for x, y in weir.torch.Loader(exchange, data, num_workers=2):
            loss_of(model(x), y).backward()

    What was read ahead is given up when members come or go, and read again by the new parts: each
    sample still counts once. In modes other than `sync` no step is known ahead: workers read each
    when it begins, as without `num_workers`.

    data: a data set that has a length. settings: of torch.utils.data.DataLoader, but for what says
    which samples are read, and when (batch_size, shuffle, sampler, drop_last, in_order=False).
    Processes are started by `forkserver` unless multiprocessing_context says otherwise, as a
    program with open connections is not to be forked: the data set is pickled, and the script needs
    its `if __name__ == "__main__":`."""

    def __init__(self, exchange: Any, data: Any, **settings: Any) -> None:
        if not settings.get("in_order", True):
            raise Invalid("in_order=False mixes the steps' batches up; leave it out")
        self.exchange, self.n = exchange, len(data)
        self.restarts = 0  # how often what was read ahead was given up
        self._known_ahead = bool(settings.get("num_workers"))
        self._asked: collections.deque[list[int]] = collections.deque()
        if settings.get("num_workers"):
            settings = {"multiprocessing_context": "forkserver", "persistent_workers": True,
                        **settings}
        self._loader = torch.utils.data.DataLoader(data, batch_sampler=_Ahead(self), **settings)
        self._batches: Union[Iterator[Any], None] = None

    def _ahead(self) -> Iterator[list[int]]:
        """What is to be read next, from the step at hand on."""
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
                    self._known_ahead = step.began  # else they are given out one by one
                self._asked.clear()
                self._batches = iter(self._loader)
            batch = next(self._batches)
            self._asked.popleft()
            yield batch
        self._batches = None


class _Ahead:
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[list[int]]:
        return self.loader._ahead()
