#!/usr/bin/env python3
"""Writes tests/golden/torchvision/resnet18.json: the names and shapes of the state dict of
torchvision's resnet18, and the probabilities that this network computes in float64 for some
samples. The numbers of golden.torch_state are its parameters. tests/python/test_resnet18.py then
compares examples/models/resnet18.json with this file, without PyTorch.

    pip install torch torchvision numpy && tests/golden/make_resnet18.py
"""
import json
import os
import sys

import torch
import torchvision

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../python"))
import golden  # noqa: E402
import test_resnet18  # noqa: E402


def main():
    torch.set_num_threads(1)
    net = torchvision.models.resnet18(weights=None, num_classes=test_resnet18.CLASSES).eval()
    names = [(name, list(t.shape)) for name, t in net.state_dict().items()]
    net.load_state_dict({name: torch.tensor(values).reshape(shape) for name, (_, shape, values) in
                         golden.torch_state(names).items()})
    samples, _ = test_resnet18.samples()
    batch = torch.tensor(list(samples)).reshape(-1, *test_resnet18.SAMPLE).double() / 255
    with torch.no_grad():
        rows = net.double()(batch).softmax(1).tolist()
    os.makedirs(os.path.dirname(golden.RESNET18), exist_ok=True)
    with open(golden.RESNET18, "w", encoding="utf-8") as f:
        f.write('{"torchvision": "%s",\n "tensors": [\n  %s],\n "probabilities": [\n  %s]}\n' % (
            torchvision.__version__, ",\n  ".join(map(json.dumps, names)),
            ",\n  ".join(json.dumps([round(v, 8) for v in row]) for row in rows)))
    print("classes %s, largest %.3f" % ([row.index(max(row)) for row in rows],
                                        max(map(max, rows))))


if __name__ == "__main__":
    main()
