#!/usr/bin/env python3
"""Writes tests/golden/predictions, which has a folder for each of some small networks of PyTorch 2:
the state dict as safetensors, with PyTorch's own names; samples as bytes; and PyTorch's
probabilities for each sample, in float64, so that only Weir rounds. A folder also contains the
same network as a model file, and a map of names if the network needs one, both written by hand.
tests/python/test_golden_predictions.py then compares Weir's probabilities with PyTorch's, without
PyTorch.

    pip install torch safetensors && tests/golden/make_predictions.py [NETWORK...]
"""
import json
import os
import random
import sys

import torch
from safetensors.torch import save_file
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../python"))
import golden  # noqa: E402

N = 40


class Colour(nn.Module):
    """Convolutions and batch normalisations on colour pictures."""
    sample, largest, classes = (3, 8, 8), 255, 5

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(5, 6, (3, 2)), nn.BatchNorm2d(6, eps=0.01), nn.ReLU())
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(36, 5))

    def forward(self, x):
        return self.classifier(self.features(x / 255))


class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n)
        self.conv2, self.bn2 = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n)

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(y)))


class Residual(nn.Module):
    """A shortcut, convolutions without biases, and a mean over the picture, as in ResNets."""
    sample, largest, classes = (1, 9, 7), 255, 4

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(Block(4))
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = self.layer1(torch.relu(self.bn1(self.conv1(x / 255))))
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Words(nn.Module):
    """An embedding and layer normalisations over a sentence's numbers."""
    sample, largest, classes = (1, 1, 9), 29, 3

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(30, 4)
        self.norm = nn.LayerNorm((4, 1, 9))
        self.mlp = nn.Sequential(nn.Linear(36, 10), nn.LayerNorm(10, eps=1e-3), nn.ReLU(),
                                 nn.Linear(10, 3))

    def forward(self, x):
        x = self.tokens(x[:, 0].long()).permute(0, 3, 1, 2)
        return self.mlp(self.norm(x).flatten(1))


def shaken(net, batch):
    """Changes a network as training would. No parameter keeps its usual first value, the statistics
    are those of the samples, and the outputs differ widely."""
    for name, p in net.named_parameters():
        if p.dim() == 1 or "norm" in name:
            p.data += 0.3 * torch.randn_like(p)
    [*net.modules()][-1].weight.data *= 6
    net.train()
    for _ in range(20):
        net(batch)
    net.eval()


def write(name, net):
    folder = os.path.join(golden.PREDICTIONS, name)
    rng = random.Random(len(name))
    size = torch.Size(net.sample).numel()
    limits = [rng.randint(1, net.largest) for _ in range(N)]
    samples = bytes(rng.randint(0, limit) for limit in limits for _ in range(size))
    labels = bytes([*range(net.classes), *(rng.randrange(net.classes)
                                           for _ in range(N - net.classes))])
    batch = torch.tensor(list(samples), dtype=torch.float32).reshape(N, *net.sample)
    shaken(net, batch)
    save_file(net.state_dict(), os.path.join(folder, "state.safetensors"))
    with torch.no_grad():
        out = net.double()(batch.double())
        p = out.softmax(1)
        loss = nn.functional.cross_entropy(out, torch.tensor(list(labels)))
    golden.write_samples(folder, "test", net.sample, samples, labels)
    with open(os.path.join(folder, "predictions.json"), "w", encoding="utf-8") as f:
        f.write('{"torch": "%s", "loss": %.9f,\n "probabilities": [\n  %s]}\n' % (
            torch.__version__, loss, ",\n  ".join(
                json.dumps([round(v, 8) for v in row]) for row in p.tolist())))
    print("%s: loss %.4f, classes %s" % (name, loss, sorted(set(p.argmax(1).tolist()))))


def main():
    torch.set_num_threads(1)
    for name, kind in (("colour", Colour), ("residual", Residual), ("words", Words)):
        if not sys.argv[1:] or name in sys.argv[1:]:
            torch.manual_seed(7)
            write(name, kind())


if __name__ == "__main__":
    main()
