"""Trains a small network by the program's own AdamW with two groups and a cosine, as a worker of a
job (test_torch_groups.py). Prints the loss of each step, and the SHA-256 of the weights."""
import hashlib
import time

import torch
import weir
import weir.torch
from torch import nn

STEPS = 60


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    x = torch.randn(64, 8)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    rule = torch.optim.AdamW([{"params": [net[0].weight, net[2].weight], "weight_decay": 0.2},
                              {"params": [net[0].bias, net[2].bias], "lr": 0.02,
                               "weight_decay": 0.0}], lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(rule, STEPS)
    exchange = weir.torch.Exchange(net, optimizer=rule, scheduler=scheduler, train_steps=STEPS,
                                   batch_size=8, seed=1, **weir.flags()[0])
    for step in exchange:
        loss = (net(x[exchange.samples(64)]) ** 2).mean()
        loss.backward()
        rule.step()
        scheduler.step()
        rule.zero_grad()
        print("step %d loss %.9g" % (step.step, loss.item()), flush=True)
        time.sleep(0.02)  # the test kills processes between two steps
    weights = b"".join(bytes(t.flatten().view(torch.uint8).tolist())
                       for t in net.state_dict().values())
    print("SHA-256 of the weights:", hashlib.sha256(weights).hexdigest())


main()
