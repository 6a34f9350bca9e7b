"""One worker of bench/own_model.py: the GPT of examples/python/char_gpt.py, of any size, trained by
Weir's servers, by DistributedDataParallel over gloo, or by itself. Prints its costs as JSON."""
import json
import os
import sys

import torch
import weir
import weir.torch
from member_clock import Clock
from torch import distributed
from torch.nn import functional as F

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "examples/python"))
import char_gpt as gpt  # noqa: E402


def batch(data, windows):
    return (torch.stack([data[i:i + gpt.CONTEXT] for i in windows]),
            torch.stack([data[i + 1:i + gpt.CONTEXT + 1] for i in windows]))


def loss_of(model, data, windows):
    x, y = batch(data, windows)
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def by_weir(model, data, o, clock):
    trace = o.get("trace") and "%s-%d.json" % (o["trace"], o["rank"])
    settings = {"train_steps": o["steps"], "trace": trace, "batch_size": gpt.BATCH, "seed": 1}
    rule = None
    if o["kind"] == "own":
        rule = torch.optim.AdamW(model.parameters(), lr=gpt.RATE)
        exchange = weir.torch.Exchange(model, optimizer=rule, **settings)
    else:
        exchange = weir.torch.Exchange(model, optimizer="adamw", learning_rate=gpt.RATE,
                                       early=o["kind"] == "early", **settings)
    for step in exchange:
        clock.at(step.step)
        loss = loss_of(model, data, exchange.samples(len(data) - gpt.CONTEXT))
        loss.backward()
        if rule:
            rule.step()
            rule.zero_grad()
        clock.at(-1, loss.item())
        if step.step + 1 == step.train_steps:
            end = clock.now()  # the servers end after the last step
    clock.report(end)


def by_pytorch(model, data, o, clock):
    """Trains by DDP in its fastest way: with a fused optimizer, and gradients in the buckets."""
    rank = o["rank"]
    if o["kind"] == "ddp":
        distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    rule = torch.optim.AdamW(model.parameters(), lr=gpt.RATE, fused=True)
    order = weir.Member(seed=1, task_index=0, n_workers=1)  # chooses samples by Weir's rule
    for step in range(o["steps"]):
        clock.at(step)
        first = (2 * step + rank) * gpt.BATCH
        windows = [order.sample(len(data) - gpt.CONTEXT, i)
                   for i in range(first, first + gpt.BATCH)]
        loss = loss_of(model, data, windows)
        rule.zero_grad()
        loss.backward()
        rule.step()
        clock.at(-1, loss.item())
    clock.report()
    if o["kind"] == "ddp":
        distributed.destroy_process_group()


def main():
    o = json.loads(sys.argv[1])
    gpt.WIDTH, gpt.LAYERS, gpt.BATCH = o["width"], o["layers"], o["batch"]
    torch.manual_seed(1)
    torch.set_num_threads(o["threads"])
    data = torch.tensor([gpt.LETTERS.index(c) for c in gpt.TEXT])
    model, clock = gpt.GPT(), Clock(o["warmup"], o["servers"])
    (by_weir if o["kind"] in ("weir", "early", "own") else by_pytorch)(model, data, o, clock)


if __name__ == "__main__":
    main()
