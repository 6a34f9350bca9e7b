"""Predicts clicks on advertisements from 26 sparse and 13 dense features, by a small network in the
manner of DLRM. It uses PyTorch alone, in one process, which needs the vocabulary of its samples.
clicks_weir.py trains the same network, whose rows are in a table of Weir's servers.
    scripts/make_data --clicks --out=clicks
    python3 examples/python/clicks.py clicks"""
import json
import struct
import sys

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

STEPS, BATCH, DIM, RATE = 200, 512, 16, 0.02
EPSILON = 1e-4  # with less, Adagrad makes large steps of gradients that are rounding errors


class Net(nn.Module):
    """rows: a module that returns a row of DIM floats for each key."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, DIM), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(DIM + 27 * 26 // 2, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.triu_indices(27, 27, 1), persistent=False)

    def forward(self, keys, dense):
        x = self.bottom(dense)
        all_ = torch.cat([x[:, None], self.rows(keys)], 1)
        products = (all_ @ all_.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], 1))[:, 0]


def load(path):
    """Returns keys [n][26], dense features [n][13] and labels [n] of a file of make_data."""
    with open(path, "rb") as file:
        whole = bytearray(file.read())
    (size,) = struct.unpack_from("<Q", whole)
    head, found = json.loads(whole[8:8 + size]), []
    for name, dtype in (("keys", torch.int64), ("dense", torch.float32), ("labels", torch.uint8)):
        begin, end = head[name]["data_offsets"]
        part = whole[8 + size + begin:8 + size + end]
        found.append(torch.frombuffer(part, dtype=dtype).view(head[name]["shape"]))
    return found[0], found[1], found[2].float()


def auc(scores, labels):
    """Returns the probability that a click has a higher score than another sample."""
    places = torch.empty_like(scores, dtype=torch.float64)
    places[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    n = labels.sum().item()
    return (places[labels > 0].sum().item() - n * (n + 1) / 2) / (n * (len(labels) - n))


def evaluate(model, keys, dense, labels):
    """Returns the AUC of a data set."""
    with torch.no_grad():
        scores = [model(k, d) for k, d in zip(keys.split(2000), dense.split(2000))]
    return auc(torch.cat(scores), labels)


def main():
    torch.manual_seed(1)
    folder = sys.argv[1]
    (keys, dense, labels), test = load(folder + "/train.safetensors"), load(
        folder + "/test.safetensors")
    words, keys = keys.unique(return_inverse=True)
    # All keys of the test that are new have one row more.
    places = torch.searchsorted(words, test[0]).clamp(max=len(words) - 1)
    test = (torch.where(words[places] == test[0], places, len(words)), *test[1:])
    model = Net(nn.Embedding(len(words) + 1, DIM, sparse=True))
    nn.init.uniform_(model.rows.weight, -0.05, 0.05)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=RATE, eps=EPSILON)
    for step in range(STEPS):
        items = torch.randint(len(labels), (BATCH,))
        loss = binary_cross_entropy_with_logits(model(keys[items], dense[items]), labels[items])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step %d loss %.9g" % (step, loss.item()), flush=True)
    print("test AUC %.4f" % evaluate(model, *test))


if __name__ == "__main__":
    main()
