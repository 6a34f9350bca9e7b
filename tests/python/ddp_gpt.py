"""Trains examples/python/char_gpt.py by PyTorch's DistributedDataParallel over gloo, for comparison
with char_gpt_weir.py. Both begin with the same values, and a rank reads the same samples in a step.
    torchrun --nproc_per_node=2 ddp_gpt.py STEPS"""
import os
import sys

import torch
import weir
from torch import distributed
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../examples/python"))
from char_gpt import BATCH, CONTEXT, GPT, LETTERS, RATE, TEXT  # noqa: E402


def main():
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    data = torch.tensor([LETTERS.index(c) for c in TEXT])
    n = len(data) - CONTEXT
    model = torch.nn.parallel.DistributedDataParallel(GPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    order = weir.Member(seed=1, task_index=0, n_workers=1)  # sample positions by Weir's rule
    for step in range(int(sys.argv[1])):
        first = (step * size + rank) * BATCH
        windows = [order.sample(n, i) for i in range(first, first + BATCH)]
        x = torch.stack([data[i:i + CONTEXT] for i in windows])
        y = torch.stack([data[i + 1:i + CONTEXT + 1] for i in windows])
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step %d loss %.9g" % (step, loss.item()), flush=True)
    distributed.destroy_process_group()


main()
