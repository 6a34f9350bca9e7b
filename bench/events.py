"""bench/events: measures the cost of --logdir. Two workers without servers train the same model on
Fashion-MNIST at the same time and on the same core, so that other programs disturb both alike. One
of them has --logdir. Then they run once more, with the other one started first. The program does
this in many short rounds, compares the CPU seconds of the two processes, and prints the mean
difference with its 95% interval (common.paired).
    bench/events [--model=mlp] [--steps=2000] [--rounds=30] [--batch=100] [-- --histogram_steps=100]
Flags behind -- are for the worker with --logdir alone. --none starts both without --logdir, which
should show no difference. Prints a line for each round, and the result as a line of JSON."""
import argparse
import json
import os
import subprocess
import tempfile

import common


class Run:
    def __init__(self, args, folder, core, logdir):
        argv = ["taskset", "-c", str(core), os.path.join(args.bin, "worker"), "--gpus=none",
                "--model=" + args.model,
                "--models_dir=" + os.path.join(common.SOURCE, "examples/models"),
                "--train_steps=%d" % args.steps, "--batch_size=%d" % args.batch, "--seed=1",
                "--intra_op_threads=1", "--log_level=warn"]
        if logdir and not args.none:
            argv += ["--logdir=" + os.path.join(folder, "log"), *args.flags]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)

    def seconds(self):
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode:
            raise SystemExit("bench/events: a worker ended with %d" % self.process.returncode)
        return used.ru_utime + used.ru_stime


def one_round(args, number):
    """Returns the figures of a round: without and with --logdir."""
    with tempfile.TemporaryDirectory(prefix="weir-events-") as folder:
        order, core = [number % 2, 1 - number % 2], number // 2 % os.cpu_count()
        runs = {logdir: Run(args, folder, core, logdir) for logdir in order}
        return [runs[logdir].seconds() for logdir in (0, 1)]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--model", default="mlp")
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--batch", type=int, default=100)
    p.add_argument("--rounds", type=int, default=30)
    p.add_argument("--none", action="store_true")
    p.add_argument("--bin", default=os.path.join(common.SOURCE, "build/bin"))
    p.add_argument("flags", nargs="*")
    return p.parse_args()


def main():
    args = arguments()
    print(common.machine())
    print("| round | CPU s without | with |\n| --- | --- | --- |")
    blocks = []
    for i in range(max(2, args.rounds)):
        blocks.append([one_round(args, 2 * i), one_round(args, 2 * i + 1)])
        print("| %d | %.3f | %.3f |" % (i + 1, *(sum(x) for x in zip(*blocks[-1]))), flush=True)
    mean, half = common.paired(blocks)
    print("CPU: --logdir costs %.2f%% +- %.2f%%" % (mean, half))
    print(json.dumps({"bench": "events", "model": args.model, "steps": args.steps,
                      "batch": args.batch, "flags": args.flags, "none": args.none,
                      "rounds": len(blocks), "cpu_percent": round(mean, 3),
                      "half": round(half, 3)}))


main()
