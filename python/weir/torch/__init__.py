"""Trains PyTorch modules on Weir's servers.

    exchange = weir.torch.Exchange(model, optimizer="adamw", learning_rate=1e-3, batch_size=64,
                                   train_steps=1000)
    for step in exchange:
        x, y = batch(exchange.samples(len(data)))
        loss_of(model(x), y).backward()

Needs PyTorch 2.1 or later. docs/guide/pytorch.md is the manual, docs/guide/tables.md that of
Embedding and EmbeddingBag, whose rows are in sparse tables, and of with_tables."""
from ._checkpoint import load_checkpoint
from ._exchange import Exchange
from ._loader import Loader, Sampler
from ._tables import Embedding, EmbeddingBag
from ._with_tables import with_tables

__all__ = ["Embedding", "EmbeddingBag", "Exchange", "Loader", "Sampler", "load_checkpoint",
           "with_tables"]
