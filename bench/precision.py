"""bench/precision: measures the accuracy that --precision=bf16 costs. A worker without servers
trains a model on Fashion-MNIST in fp32 and in bf16, with the same seeds, one run after the other.
Then the program compares, for each seed, the accuracies on the test images, in percentage points.
    bench/precision [--model=deep_mnist] [--epochs=3] [--seeds=1,2,3] [--rate=0.001]
Prints a table, and the same data as a line of JSON. The exit status is 1 if the mean accuracy in
bf16 is more than --allow points (0.2) below that in fp32."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import common


def train(args, seed, precision):
    """Returns the accuracy on the test images after one run, from the worker's summary (0 to 1)."""
    with tempfile.TemporaryDirectory(prefix="weir-precision-") as folder:
        path = os.path.join(folder, "summary.json")
        argv = [os.path.join(args.bin, "worker"), "--gpus=none", "--model=" + args.model,
                "--models_dir=" + os.path.join(common.SOURCE, "examples/models"),
                "--epochs=%g" % args.epochs, "--batch_size=64", "--optimizer=adam",
                "--learning_rate=%g" % args.rate, "--seed=%d" % seed, "--precision=" + precision,
                "--intra_op_threads=1", "--log_level=warn", "--summary_json=" + path]
        subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
        return common.read_json(path)["test_accuracy"]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--model", default="deep_mnist")
    p.add_argument("--epochs", type=float, default=3)
    p.add_argument("--rate", type=float, default=0.001)
    p.add_argument("--seeds", default="1,2,3")
    p.add_argument("--allow", type=float, default=0.2, help="points that bf16 may lose")
    p.add_argument("--bin", default=os.path.join(common.SOURCE, "build/bin"))
    return p.parse_args()


def main():
    args = arguments()
    seeds = [int(s) for s in args.seeds.split(",")]
    points = {"fp32": [], "bf16": []}
    print(common.machine())
    print("| seed | fp32 | bf16 |\n| --- | --- | --- |")
    for seed in seeds:
        for precision, got in points.items():
            got.append(100 * train(args, seed, precision))
        print("| %d | %.2f | %.2f |" % (seed, points["fp32"][-1], points["bf16"][-1]), flush=True)
    mean = {p: statistics.mean(got) for p, got in points.items()}
    lost = mean["fp32"] - mean["bf16"]
    print("| mean | %.2f | %.2f |" % (mean["fp32"], mean["bf16"]))
    print(json.dumps({"bench": "precision", "model": args.model, "epochs": args.epochs,
                      "accuracy": points, "lost_points": round(lost, 3)}))
    if lost > args.allow:
        sys.exit("bf16 is %.2f points below fp32: %.2f are allowed" % (lost, args.allow))


main()
