"""Embedding and EmbeddingBag: modules whose rows are in sparse tables of Weir's servers.

forward() looks up the rows of its unique keys, a tensor that requires gradients, and passes it to
PyTorch's own function with the places of the keys in it. When backward has computed the gradient of
these rows, a hook adds keys and gradient to those of the step, which the exchange pushes when it
pushes the parameters without a gradient. So rows live as long as PyTorch's graph, and a forward
without a backward pushes nothing."""
from __future__ import annotations

import functools
import weakref
from typing import Any, Optional

import torch

from .._library import Invalid, note
from .._trace import Trace

# Arguments of PyTorch's modules, and their replacements.
REFUSED = {
    "padding_idx": "multiply the output by a mask, or leave the key out of its bag",
    "max_norm": "rows would change outside of the servers; make the bound a part of forward",
    "scale_grad_by_freq": "divide per_sample_weights by the frequencies",
    "sparse": "remove it; the gradients of a table are always those of its rows",
    "_weight": "rows begin with values of the settings init and init_scale",
    "dtype": "rows are float32; convert the output by .to(dtype)",
    "device": "remove it; the output is on the device of the keys",
}

# Attributes of PyTorch's modules that a module with a table lacks, and what to use instead.
ABSENT = {
    "weight": "the rows are on the servers; forward(keys) returns those of keys during a step, the "
              "settings init and init_scale choose their first values, and checkpoints have all",
    "num_embeddings": "a table has no vocabulary; max_rows is the greatest number of its rows",
    "reset_parameters": "rows begin with values of the settings init and init_scale",
    **{name: REFUSED[name] for name in ("padding_idx", "max_norm", "scale_grad_by_freq", "sparse")},
    "norm_type": REFUSED["max_norm"],
}


class Table:
    """The table of a module, in an exchange. A copy of the module has none."""

    def __init__(self, exchange: Any, number: int, name: str, dim: int) -> None:
        self.number, self.name, self.dim = number, name, dim
        self._exchange = weakref.ref(exchange)
        # Keys and gradients of the present step, and keys that the next one reads.
        self.gradients: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._reads: list[torch.Tensor] = []
        self.pushed = False  # whether this step's gradients were pushed
        self._read = False  # whether this step has waited for the answers to the last push

    def __deepcopy__(self, _memo: Any) -> None:
        return None

    def __reduce__(self) -> Any:
        return type(None), ()

    def begin_step(self) -> None:
        self.gradients, self._reads, self.pushed, self._read = [], [], False, False

    def exchange(self) -> Any:
        """Returns the exchange. Raises Invalid outside of its steps."""
        exchange = self._exchange()
        if exchange is None or exchange.step is None:
            raise Invalid("table '%s' has rows only during the steps of its exchange; evaluate "
                          "before the loop ends, at the latest after the last backward() or "
                          "optimizer.step()" % self.name)
        return exchange

    def rows(self, keys: torch.Tensor) -> torch.Tensor:
        """Returns the rows [n][dim] of n unique keys. If the step no longer counts, they are
        zeros."""
        exchange = self.exchange()
        found = None
        if exchange.counts and len(keys):
            begin = Trace.now()
            found = exchange.member.lookup(self.number, keys)
            if exchange._trace:
                exchange._trace.add("wait", "rows of " + self.name, begin)
            exchange.counts = self._read = found is not None
        if found is None:  # PyTorch's bags need a row, even if no key uses it
            rows = torch.zeros(max(1, len(keys)), self.dim, device="cpu")
        else:
            rows = torch.frombuffer(found, dtype=torch.float32).view(len(keys), self.dim)
        if torch.is_grad_enabled():
            rows.requires_grad_(True)
            rows.register_post_accumulate_grad_hook(
                functools.partial(self._on_gradient, exchange.step, keys))
        return rows

    def _on_gradient(self, step: Any, keys: torch.Tensor, rows: torch.Tensor) -> None:
        """Handles the gradient of a forward's rows, which backward has computed."""
        gradient, rows.grad = rows.grad, None
        exchange = self.exchange()
        if exchange.step is not step:
            raise Invalid("backward() through rows of table '%s' that an earlier step has looked "
                          "up; call forward and backward in the same step" % self.name)
        exchange._way.on_rows(exchange)
        if not exchange.counts or exchange._skipped or not len(keys):
            return
        if self.pushed:
            raise Invalid("table '%s' received another gradient after the step's gradients were "
                          "sent; if the optimizer is a name, set the number of backward() calls in "
                          "a step: backwards=N" % self.name)
        assert gradient is not None
        self.gradients.append((keys, gradient.detach()))

    def read_next(self, keys: torch.Tensor) -> None:
        """Adds keys to those that the next step reads."""
        if self.pushed:
            raise Invalid("reads() after the gradients of the step were sent; name the keys of the "
                          "next batch before backward() or optimizer.step()")
        self._reads.append(unsigned(self.name, keys).flatten())

    def push(self) -> None:
        """Pushes the step's gradients, or none, with the keys that the next step reads."""
        exchange = self.exchange()
        if exchange.early and not self._read:  # the last push may have no answer yet
            exchange.counts = exchange.member.lookup(self.number, None) is not None
            if not exchange.counts:
                return
        if self._reads:
            exchange.member.next_keys(self.number, torch.cat(self._reads).unique())
        keys = gradients = None
        if self.gradients and not exchange._skipped:
            keys, gradients = (torch.cat(parts) for parts in zip(*self.gradients))
        exchange.member.push_rows(self.number, keys, gradients, samples=0 if exchange._skipped else
                                  exchange.step.n_samples)
        self.gradients, self._reads, self.pushed = [], [], True


def unsigned(name: str, keys: torch.Tensor) -> torch.Tensor:
    """Returns keys of the table `name` as int64 in the CPU's memory, with the same 64 bits."""
    if not isinstance(keys, torch.Tensor) or keys.dtype not in (
            torch.int32, torch.int64, getattr(torch, "uint64", None)):
        raise Invalid("table '%s': keys are a tensor of int64, int32 or uint64, not %s" % (
            name, getattr(keys, "dtype", type(keys).__name__)))
    if keys.dtype == torch.int32:
        keys = keys.long()
    return keys.detach().view(torch.int64).cpu()


@functools.cache  # a line for each process is enough
def _note_no_rows() -> None:
    note("state_dict() does not contain the rows of tables (weir.torch.Embedding, EmbeddingBag): "
         "the servers' checkpoints have them, and weirctl export writes them to a file")


class _Rows(torch.nn.Module):
    """Base class of the modules."""

    def __init__(self, max_rows: int, dim: int, name: str, settings: dict[str, Any]) -> None:
        super().__init__()
        for refused in settings.keys() & REFUSED.keys():
            value = settings.pop(refused)
            if value is not None and value is not False:
                raise Invalid("a table has no %s: %s" % (refused, REFUSED[refused]))
        self.max_rows, self.dim, self.name, self.settings = int(max_rows), int(dim), name, settings
        self._table: Optional[Table] = None  # during the steps of an exchange
        self._has_ended = False  # whether the exchange of the table has ended

    @classmethod
    def from_pretrained(cls, *_: Any, **_more: Any) -> Any:
        raise Invalid("a table has no from_pretrained: rows begin with values of the settings init "
                      "and init_scale, and a job may resume from its servers' checkpoint")

    @property
    def embedding_dim(self) -> int:
        return self.dim

    def __getattr__(self, name: str) -> Any:
        self._refuse(name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._refuse(name)
        super().__setattr__(name, value)

    def _refuse(self, name: str) -> None:
        if name in ABSENT:
            raise AttributeError("%s has no %s: %s" % (type(self).__name__, name, ABSENT[name]))

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        _note_no_rows()

    def extra_repr(self) -> str:
        return ", ".join(["%d, %d, name=%r" % (self.max_rows, self.dim, self.name)] + [
            "%s=%r" % item for item in self.settings.items()])

    def _look_up(self, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the rows of the unique keys, and the place of each key in them, on the device of
        the keys."""
        if self._table is None and self._has_ended:
            raise Invalid("table '%s' has no rows any more, because the loop over the steps has "
                          "ended; evaluate in the loop, at the latest in the last step after "
                          "backward() or optimizer.step(); checkpoints of the servers have the "
                          "rows, and weirctl export writes them to a file" % self.name)
        if self._table is None:
            raise Invalid("table '%s' has no rows yet: its module has them in a loop over an "
                          "exchange, from the first step on, if the exchange's model contains the "
                          "module itself and not a copy" % self.name)
        unique, places = torch.unique(unsigned(self.name, keys), return_inverse=True)
        rows = self._table.rows(unique)
        return rows.to(keys.device), places.to(keys.device)


class Embedding(_Rows):
    """Rows of a sparse table of the servers by their keys, like torch.nn.Embedding. It needs no
    vocabulary: the keys are any integers of 64 bits, and a row is created when a gradient first
    reaches it.

    max_rows: greatest number of rows of the table. dim: number of floats of a row. name: unique in
        the job; checkpoints and messages have it.
    settings: optimizer, learning_rate, init, init_scale, admit_after, evict_after, when_full and so
        on (docs/guide/tables.md). By default the table has the optimizer of the job.

    A module with a table belongs to the model of an Exchange, and has rows during its steps only.
    The rows are no parameter of the module, so they are in no state_dict, and no optimizer of the
    program has them."""

    def __init__(self, max_rows: int, dim: int, *, name: str, **settings: Any) -> None:
        super().__init__(max_rows, dim, name, settings)

    @torch.compiler.disable
    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        """Returns the rows [...][dim] of keys [...]."""
        rows, places = self._look_up(keys)
        return torch.nn.functional.embedding(places, rows)


class EmbeddingBag(_Rows):
    """Sums, means or maxima of bags of rows of a sparse table, like torch.nn.EmbeddingBag.
    max_rows, dim, name, settings: those of Embedding. mode: "sum", "mean" or "max"."""

    def __init__(self, max_rows: int, dim: int, *, name: str, mode: str = "mean",
                 include_last_offset: bool = False, **settings: Any) -> None:
        super().__init__(max_rows, dim, name, settings)
        if mode not in ("sum", "mean", "max"):
            raise Invalid("mode is 'sum', 'mean' or 'max', not %r" % (mode,))
        self.mode, self.include_last_offset = mode, include_last_offset

    def extra_repr(self) -> str:
        return super().extra_repr() + ", mode=%r" % self.mode

    @torch.compiler.disable
    def forward(self, keys: torch.Tensor, offsets: Optional[torch.Tensor] = None,
                per_sample_weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Returns a row for each bag, [bags][dim]. keys: [bags][n], or [n] with the offset of each
        bag. per_sample_weights: factors of the keys, in mode "sum"."""
        rows, places = self._look_up(keys)
        return torch.nn.functional.embedding_bag(
            places, rows, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset)


def begin(exchange: Any) -> list[Table]:
    """Adds the tables of the exchange's model to the job."""
    found = [m for m in exchange.model.modules() if isinstance(m, _Rows)]
    if found:
        exchange._way.check_tables()
    names = [m.name for m in found]
    made = []
    for m in found:
        if names.count(m.name) > 1:
            raise Invalid("two modules have tables named '%s'; use one module in both places, or "
                          "another name" % m.name)
        number = exchange.member.table(m.name, m.dim, m.max_rows, **m.settings)
        m._table = Table(exchange, number, m.name, m.dim)
        made.append(m._table)
    return made


def end(exchange: Any) -> None:
    """Ends the connection of the modules to their tables."""
    for m in exchange.model.modules():
        if isinstance(m, _Rows) and m._table in exchange.tables:
            m._table, m._has_ended = None, True
