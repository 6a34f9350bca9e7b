"""One member of bench/sparse.py: a net with one embedding table, trained with a sparse table of
Weir's servers, with dense parameters of Weir's servers, by DistributedDataParallel over gloo, or by
itself. Prints its costs as JSON."""
import json
import math
import os
import sys

import torch
import weir.torch
from member_clock import Clock
from torch import distributed, nn
from torch.nn import functional as F

RATE = 1e-3
KEYS_AHEAD = 64  # batches that are made before the timed steps, and then used in turn


class Net(nn.Module):
    """Three hidden layers above the rows of the keys of a sample."""

    def __init__(self, rows, o):
        super().__init__()
        self.rows = rows
        layers, width = [], o["keys"] * o["dim"]
        for _ in range(3):
            layers += [nn.Linear(width, o["width"]), nn.ReLU()]
            width = o["width"]
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, keys):
        return self.layers(self.rows(keys).flatten(1)).squeeze(1)


class Batches:
    """Log-uniform keys, and labels that follow from the keys: each key has a hidden weight."""

    def __init__(self, o):
        draw = torch.Generator().manual_seed(1000 + o["rank"])
        shape = (KEYS_AHEAD, o["batch"], o["keys"])
        self.keys = (torch.rand(shape, generator=draw, dtype=torch.float64)
                     * math.log(o["rows"])).exp().long().clamp(max=o["rows"] - 1)
        weight = (self.keys * 2654435761 % 4096).float() / 2048 - 1
        self.labels = (weight.sum(2) > 0).float()

    def keys_of(self, step):
        return self.keys[step % KEYS_AHEAD]

    def loss(self, model, step):
        return F.binary_cross_entropy_with_logits(model(self.keys_of(step)),
                                                  self.labels[step % KEYS_AHEAD])


def net(o):
    torch.manual_seed(1)
    if o["kind"] in ("tables", "async"):
        return Net(weir.torch.Embedding(2 * o["rows"], o["dim"], name="rows", init="zeros"), o)
    rows = nn.Embedding(o["rows"], o["dim"], sparse=o["kind"] != "dense")
    torch.manual_seed(1)  # the layers have the same first values in each kind
    model = Net(rows, o)
    nn.init.zeros_(rows.weight)
    return model


def by_weir(model, batches, o, clock):
    settings = {"sync_mode": "async"} if o["kind"] == "async" else {}
    exchange = weir.torch.Exchange(model, optimizer="adam", learning_rate=RATE,
                                   train_steps=o["steps"], batch_size=o["batch"], seed=1,
                                   **settings)
    for n, step in enumerate(exchange):  # n: number of this member's step
        clock.at(n)
        if o["kind"] == "tables":
            exchange.reads(model.rows, batches.keys_of(step.step + 1))
        loss = batches.loss(model, step.step)
        loss.backward()
        clock.at(-1, loss.item())
        if step.step + 1 >= step.train_steps or o["kind"] == "async":
            end = clock.now()  # before the servers end
    clock.report(end)


def by_pytorch(model, batches, o, clock):
    """Trains with SparseAdam for the rows and Adam for the layers, as PyTorch's docs advise."""
    rules = [torch.optim.SparseAdam(list(model.rows.parameters()), lr=RATE),
             torch.optim.Adam(model.layers.parameters(), lr=RATE, fused=True)]
    if o["kind"] == "ddp":
        distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    for step in range(o["steps"]):
        clock.at(step)
        loss = batches.loss(model, step)
        for rule in rules:
            rule.zero_grad()
        loss.backward()
        for rule in rules:
            rule.step()
        clock.at(-1, loss.item())
    clock.report()
    if o["kind"] == "ddp":
        distributed.destroy_process_group()


def main():
    o = json.loads(sys.argv[1])
    torch.set_num_threads(o["threads"])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    clock = Clock(o["warmup"], o["servers"])
    (by_pytorch if o["kind"] in ("ddp", "alone") else by_weir)(net(o), Batches(o), o, clock)


if __name__ == "__main__":
    main()
