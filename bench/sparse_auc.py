"""Compares the AUC of examples/models/deepfm.json, trained by 1 ps and 2 workers with the servers'
rows, with that of one PyTorch process, which has the same first values and reads the same samples.
Both read FOLDER/train.csv, and FOLDER/test.csv at the end.

    scripts/get_movielens movielens
    build/venv/bin/python bench/sparse_auc.py --data_dir=movielens --label_column=liked \\
        --key_columns=user_id,item_id,genre --key_separator=' '
    scripts/make_data --clicks --format=csv --out=clicks
    build/venv/bin/python bench/sparse_auc.py --data_dir=clicks --label_column=label --epochs=1 \\
        --key_columns="$(echo c{1..26} | tr ' ' ,)"

scripts/get_torch makes that venv. All columns but those of the keys and the label are numbers. The
seed determines the first values and the order of the samples."""
import argparse
import array
import csv
import json
import os
import subprocess
import sys
import tempfile

import torch
from common import SOURCE, machine, write_json
from two_members import BUILD, weir  # sets the place of the library
from weir import checkpoint, rows

TABLES = ("embedding_bag1", "factors")
ALLOW = 5e-4


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data_dir", required=True)
    p.add_argument("--label_column", required=True)
    p.add_argument("--key_columns", required=True)
    p.add_argument("--key_separator", default="")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=128, help="samples of a worker")
    p.add_argument("--learning_rate", type=float, default=0.05, help="of Adagrad")
    p.add_argument("--seeds", default="1,2,3")
    p.add_argument("--json", metavar="FILE", help="also write the figures here")
    args = p.parse_args()
    args.columns = args.key_columns.split(",")
    return args


class Samples:
    """The samples of a file: their keys as numbers of `texts`, their numbers and their labels."""

    def __init__(self, args, name, texts):
        keys, sizes, numbers, labels = [], [], [], []
        with open(os.path.join(args.data_dir, name), encoding="utf-8", newline="") as f:
            for row in csv.DictReader(f):
                for column in args.columns:
                    cell = row[column]
                    words = cell.split(args.key_separator) if args.key_separator else [cell]
                    found = [texts.setdefault("%s=%s" % (column, word), len(texts))
                             for word in words if word]
                    keys += found
                    sizes.append(len(found))
                numbers.append([float(value) for column, value in row.items()
                                if column not in (*args.columns, args.label_column)])
                labels.append(float(row[args.label_column]))
        self.n, self.n_columns = len(labels), len(args.columns)
        self.keys, self.sizes = torch.tensor(keys), torch.tensor(sizes)
        self.first = self.sizes.cumsum(0) - self.sizes
        self.numbers, self.labels = torch.tensor(numbers, dtype=torch.float64), torch.tensor(labels)

    def batch(self, items):
        """Returns (keys of all cells, place of each cell's first one, numbers, labels)."""
        cells = (items[:, None] * self.n_columns + torch.arange(self.n_columns)).flatten()
        sizes = self.sizes[cells]
        begin = sizes.cumsum(0) - sizes
        at = (self.first[cells] - begin).repeat_interleave(sizes) + torch.arange(int(sizes.sum()))
        return self.keys[at], begin, self.numbers[items].float(), self.labels[items]


class DeepFM(torch.nn.Module):
    """The network of deepfm.json, with these initial values."""

    def __init__(self, n_columns, dense, first_rows):
        super().__init__()
        self.n_columns = n_columns
        self.bags = torch.nn.ModuleDict({
            name: torch.nn.EmbeddingBag.from_pretrained(values, freeze=False, mode="sum")
            for name, values in first_rows.items()})
        self.layers = torch.nn.ModuleDict()
        with torch.no_grad():
            for name in ("dense1", "deep"):
                weights = torch.tensor(dense[name + "/weights"].tolist())
                self.layers[name] = torch.nn.Linear(*reversed(weights.shape))
                self.layers[name].weight.copy_(weights)
                self.layers[name].bias.copy_(torch.tensor(dense[name + "/biases"].tolist()))

    def forward(self, keys, begin, numbers):
        wide, x = (self.bags[name](keys, begin).unflatten(0, (-1, self.n_columns))
                   for name in TABLES)
        hidden = self.layers["dense1"](torch.cat([x.flatten(1), numbers], 1)).relu()
        return wide.sum((1, 2)) + self.layers["deep"](hidden)[:, 0] + (
            x.sum(1).square() - x.square().sum(1)).sum(1) / 2


def auc(scores, labels):
    """Returns the probability that a sample with label 1 has the higher score; equal ones count
    half."""
    values, place, n = scores.double().unique(return_inverse=True, return_counts=True)
    ranks = (n.cumsum(0) - n).double() + (n + 1).double() / 2
    n_ones = labels.sum().item()
    wins = ranks[place][labels == 1].sum().item() - n_ones * (n_ones + 1) / 2
    return wins / (n_ones * (len(labels) - n_ones))


def train_weir(args, seed, folder, *flags):
    """Trains by a job; returns worker 0's summary. The checkpoints are in folder/saved."""
    env = {**os.environ, "WEIR_BIN": os.path.join(BUILD, "bin")}
    done = subprocess.run(
        [os.path.join(SOURCE, "scripts/run_local"), "--out=" + folder, "2", "--model=deepfm",
         "--data_dir=" + args.data_dir, "--label_column=" + args.label_column,
         "--key_columns=" + args.key_columns, *(
             ["--key_separator=" + args.key_separator] if args.key_separator else []),
         "--standardize", "--optimizer=adagrad", "--learning_rate=%g" % args.learning_rate,
         "--batch_size=%d" % args.batch, "--epochs=%d" % args.epochs, "--seed=%d" % seed,
         "--intra_op_threads=1", "--checkpoint_dir=" + os.path.join(folder, "saved"), *flags],
        env=env, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit("bench: the job has failed:\n" + done.stdout[-2000:])
    with open(os.path.join(folder, "worker0.json"), encoding="ascii") as f:
        return json.load(f)


def first_values(args, seed, texts):
    """Returns the initial dense parameters, and the initial rows of all keys in each table, from a
    job of one step that changes no value."""
    with tempfile.TemporaryDirectory() as folder:
        train_weir(args, seed, folder, "--optimizer=sgd", "--learning_rate=1e-30", "--epochs=0",
                   "--train_steps=1")
        saved, export = os.path.join(folder, "saved"), os.path.join(folder, "first.safetensors")
        subprocess.run([os.path.join(BUILD, "bin/weirctl"), "--checkpoint_dir=" + saved,
                        "--output=" + export, "export"], check=True, stdout=subprocess.DEVNULL)
        keys = array.array("Q", map(weir.key, texts))
        return checkpoint.read(saved).tensors, {
            name: torch.tensor(rows.read(export).lookup(name, keys)[0].tolist())
            for name in TABLES}


def train_pytorch(args, seed, train, test, texts):
    """Returns the AUC of the test."""
    net = DeepFM(len(args.columns), *first_values(args, seed, texts))
    rule = torch.optim.Adagrad(net.parameters(), lr=args.learning_rate)
    n_steps = -(-args.epochs * train.n // (2 * args.batch))
    with weir.Member(seed=seed) as order:
        items = torch.tensor([order.sample(train.n, i) for i in range(2 * args.batch * n_steps)])
    for some in items.split(2 * args.batch):
        keys, begin, numbers, labels = train.batch(some)
        rule.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(net(keys, begin, numbers),
                                                             labels).backward()
        rule.step()
    with torch.no_grad():
        *inputs, labels = test.batch(torch.arange(test.n))
        return auc(net(*inputs), labels), n_steps


def main():
    args = parse()
    texts = {}
    train, test = Samples(args, "train.csv", texts), Samples(args, "test.csv", texts)
    mean, deviation = train.numbers.mean(0), train.numbers.std(0, correction=0)
    for samples in (train, test):
        samples.numbers = (samples.numbers - mean) / deviation
    found = []
    for seed in map(int, args.seeds.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            by_weir = train_weir(args, seed, folder)
        by_pytorch, n_steps = train_pytorch(args, seed, train, test, texts)
        if by_weir["global_step"] != n_steps:
            sys.exit("bench: the job had %d steps, PyTorch %d" % (by_weir["global_step"], n_steps))
        found.append({"seed": seed, "weir": by_weir["test_auc"], "pytorch": by_pytorch})
        print("seed %d, %d steps: AUC %.5f, PyTorch %.5f, difference %+.5f" % (
            seed, n_steps, by_weir["test_auc"], by_pytorch, by_weir["test_auc"] - by_pytorch),
            flush=True)
    print("%s; PyTorch %s; %d samples, %d keys, batch %d of a worker, %d epoch(s)" % (
        machine(), torch.__version__, train.n, len(texts), args.batch, args.epochs))
    write_json({"machine": machine(), "options": vars(args), "seeds": found}, args.json)
    if any(abs(f["weir"] - f["pytorch"]) > ALLOW for f in found):
        sys.exit("bench: an AUC differs by more than %g" % ALLOW)


if __name__ == "__main__":
    main()
