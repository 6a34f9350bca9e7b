"""A GAN trained by Weir's servers (docs/guide/pytorch.md): one Exchange holds both networks and
their optimizers, and its steps alternate between them. The network whose turn it is not stays. A
job of two workers:
    weir-ps --ps_hosts=localhost:2222 &
    python3 gan_weir.py --ps_hosts=localhost:2222 --n_workers=2 --task_index=0 &
    python3 gan_weir.py --ps_hosts=localhost:2222 --n_workers=2 --task_index=1"""
import hashlib
import math

import torch
import weir
import weir.torch
from torch import nn
from torch.nn.functional import softplus

STEPS, BATCH, NOISE = 400, 32, 4


def networks():
    torch.manual_seed(1)
    return nn.ModuleDict({
        "generator": nn.Sequential(nn.Linear(NOISE, 32), nn.ReLU(), nn.Linear(32, 2)),
        "critic": nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))})


def optimizers_of(nets):
    return {name: torch.optim.Adam(net.parameters(), lr=rate, betas=(0.5, 0.99))
            for (name, net), rate in zip(nets.items(), (2e-3, 4e-3))}


def turn(step):
    """Returns the name of the network that a step trains."""
    return "critic" if step % 2 == 0 else "generator"


def ring(n=1024):
    """Returns points of a ring, which the generator learns to draw."""
    angles = torch.arange(n) * (2 * math.pi / n)
    return torch.stack([angles.cos(), angles.sin()], 1)


def noise(items, step):
    """Returns noise that depends only on the samples and the step, also if a step is repeated."""
    made = torch.Generator().manual_seed(1000003 * step + items[0])
    return torch.randn(len(items), NOISE, generator=made)


def loss_of(nets, real, z, step):
    """Returns the loss of the network whose turn it is."""
    generator, critic = nets["generator"], nets["critic"]
    if turn(step) == "critic":
        return (softplus(-critic(real)) + softplus(critic(generator(z).detach()))).mean()
    return softplus(-critic(generator(z))).mean()


def main():
    torch.set_num_threads(1)
    nets, data = networks(), ring()
    optimizers = optimizers_of(nets)
    settings = {"train_steps": STEPS, "batch_size": BATCH, "seed": 1, **weir.flags()[0]}
    exchange = weir.torch.Exchange(nets, optimizer=list(optimizers.values()), **settings)
    for step in exchange:
        items, optimizer = exchange.samples(data), optimizers[turn(step.step)]
        optimizer.zero_grad()
        loss = loss_of(nets, data[items], noise(items, step.step), step.step)
        loss.backward()
        optimizer.step()
        print("step %d loss %.9g" % (step.step, loss.item()), flush=True)
    weights = b"".join(bytes(t.flatten().view(torch.uint8).tolist())
                       for t in nets.state_dict().values())
    print("SHA-256 of the weights:", hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
