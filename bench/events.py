"""bench/events: what --logdir costs. Two workers without servers train the same on Fashion-MNIST at
the same time, each on a core of its own, one of them with --logdir; round by round they change
cores. Compared are their processes' CPU seconds, which other work on the machine disturbs least,
and the seconds that training took; of both, the median over the rounds of with / without.
    bench/events [--model=mlp] [--steps=4000] [--rounds=9] [--batch=100] [-- --histogram_steps=100]
Flags behind -- are for the worker with --logdir alone. Prints a table, and the same as a line of
JSON."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

import common

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Run:
    def __init__(self, args, folder, core, logdir):
        self.summary = os.path.join(folder, "%s.json" % ("with" if logdir else "without"))
        argv = ["taskset", "-c", str(core), os.path.join(args.bin, "worker"), "--gpus=none",
                "--model=" + args.model, "--models_dir=" + os.path.join(SOURCE, "examples/models"),
                "--train_steps=%d" % args.steps, "--batch_size=%d" % args.batch, "--seed=1",
                "--intra_op_threads=1", "--log_level=warn", "--summary_json=" + self.summary]
        if logdir:
            argv += ["--logdir=" + os.path.join(folder, "log"), *args.flags]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)

    def seconds(self):
        """Of CPU, of training."""
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode:
            raise SystemExit("bench/events: a worker ended with %d" % self.process.returncode)
        with open(self.summary, encoding="utf-8") as f:
            return used.ru_utime + used.ru_stime, json.load(f)["elapsed_seconds"]


def one_round(args, number):
    """without, with."""
    with tempfile.TemporaryDirectory(prefix="weir-events-") as folder:
        order = [number % 2, 1 - number % 2]  # nobody is always the first
        runs = {logdir: Run(args, folder, core, logdir) for core, logdir in enumerate(order)}
        return [runs[logdir].seconds() for logdir in (0, 1)]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--model", default="mlp")
    p.add_argument("--steps", type=int, default=4000)
    p.add_argument("--batch", type=int, default=100)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--bin", default=os.path.join(SOURCE, "build/bin"))
    p.add_argument("flags", nargs="*")
    return p.parse_args()


def main():
    args = arguments()
    print(common.machine())
    print("| round | CPU s without | with | training s without | with |\n"
          "| --- | --- | --- | --- | --- |")
    cpu, elapsed = [], []
    for i in range(args.rounds):
        without, with_ = one_round(args, i)
        cpu.append(with_[0] / without[0])
        elapsed.append(with_[1] / without[1])
        print("| %d | %.2f | %.2f | %.2f | %.2f |" %
              (i + 1, without[0], with_[0], without[1], with_[1]), flush=True)
    got = {"cpu": statistics.median(cpu), "elapsed": statistics.median(elapsed)}
    print("| with / without | %.4f | | %.4f | |" % (got["cpu"], got["elapsed"]))
    print(json.dumps({"bench": "events", "model": args.model, "steps": args.steps,
                      "batch": args.batch, "flags": args.flags, "rounds": args.rounds, **got}))


main()
