"""Measures the cost of checkpoints: 1 ps and workers train a network with Adam, by default the deep
MNIST CNN. A model file with tables, and data for it, measure the checkpoints of rows.

  without   no --checkpoint_dir
  with      a checkpoint every `--every` steps; rounds of `with` and `without` alternate
  within    one run with a checkpoint every 2 * `--every` steps. The program compares two halves of
            each such period: in the first one the checkpoint is made and written, in the second one
            nothing is saved. The load of other programs hardly changes within a period, so that
            small costs are visible (--no_within omits this run)

The time of a step is that of its line in the worker's log. The steps before step `--every`, and the
last step, which waits for the last checkpoint, do not count.
"""
import argparse
import json
import os
import re
import statistics
import sys
import tempfile

from common import SOURCE, in_turns, loopback_hosts, machine, run_weir, step_times, write_json


def run(args, folder, every):
    """Makes a run; returns (step times of the first worker, number of checkpoints, their MB)."""
    hosts = loopback_hosts(args.workers)
    save = ["--checkpoint_dir=" + folder, "--save_steps=%d" % every] if every else []
    argvs = [[os.path.join(args.bin, "ps"), *hosts, "--task_index=0", *save]]
    for i in range(args.workers):
        argvs.append([os.path.join(args.bin, "worker"), *hosts, "--task_index=%d" % i,
                      "--model=" + args.model, "--optimizer=adam", "--learning_rate=0.001",
                      "--models_dir=" + os.path.join(SOURCE, "examples/models"),
                      "--data_dir=" + args.data_dir, "--batch_size=%d" % args.batch_size,
                      "--train_steps=%d" % args.steps, "--intra_op_threads=1",
                      "--progress=lines", "--log_every=1"])
    outputs = run_weir(argvs, args.limit)
    made = re.findall(r"checkpoint at step \d+: .*, ([\d.]+) MB", outputs[0])
    times = step_times(outputs[1].splitlines())
    if len(times) != args.steps:
        sys.exit("bench: some steps have no line:\n" + outputs[1])
    return times, len(made), float(made[0]) if made else 0


def rate(args, times):
    """Returns images/s of all workers."""
    first, last = args.every, args.steps - 1
    return (last - first) * args.batch_size * args.workers / (times[last] - times[first])


def halves(args, times):
    """Returns (seconds of the first half, of the second half) of each period. The servers begin a
    checkpoint of step s when they make that version, which is before the worker's line of step
    s."""
    found = []
    for begin in range(2 * args.every - 1, args.steps - 2 * args.every, 2 * args.every):
        marks = [times[begin + i * args.every] for i in range(3)]
        found.append((marks[1] - marks[0], marks[2] - marks[1]))
    return found


def parse():
    p = argparse.ArgumentParser(prog="bench/checkpoint", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--batch_size", type=int, default=64, help="per worker")
    p.add_argument("--folder", default="/var/tmp", help="folder on the disk that is measured")
    p.add_argument("--no_within", action="store_true")
    p.add_argument("--only_within", action="store_true")
    p.add_argument("--model", default="deep_mnist", help="name or file, as the worker's flag")
    p.add_argument("--data_dir", default="/usr/share/datasets/fashion-mnist")
    p.add_argument("--bin", default=os.path.join(SOURCE, "build/bin"))
    p.add_argument("--json", metavar="FILE", help="also write the figures here")
    p.add_argument("--limit", type=int, default=600, help="seconds for one run")
    args = p.parse_args()
    if args.steps < 6 * args.every:
        p.error("--steps must be at least 6 times --every")
    return args


def main():
    args = parse()
    kinds = {"without": 0, "with": args.every, "within": 2 * args.every}
    if args.no_within:
        del kinds["within"]
    if args.only_within:
        kinds = {"within": 2 * args.every}
    rates, pairs, made, size = {k: [] for k in kinds}, [], {}, 0
    for i, kind in in_turns(args.rounds, kinds):
        with tempfile.TemporaryDirectory(prefix="weir-bench-", dir=args.folder) as folder:
            times, made[kind], mb = run(args, folder, kinds[kind])
        rates[kind].append(rate(args, times))
        size = max(size, mb)
        if kind == "within":
            pairs += halves(args, times)
        print("round %d of %d: %-8s %6.0f images/s, %d checkpoints" %
              (i + 1, args.rounds, kind, rates[kind][-1], made[kind]), file=sys.stderr, flush=True)
    report(args, rates, pairs, made, size)


def report(args, rates, pairs, made, size):
    print("\n%s; %d worker%s, batch %d each, Adam, %d steps, %d rounds; files of %.1f MB below "
          "%s\n" % (machine(), args.workers, "s" * (args.workers > 1), args.batch_size, args.steps,
                    args.rounds, size, args.folder))
    result = {"machine": machine(), "images_per_second": rates, "made": made, "mb": size,
              "within": pairs,
              "figures": [[kind, "images/s", statistics.median(rates[kind])] for kind in rates]}
    if "with" in rates:
        cost = [1 - b / a for a, b in zip(rates["without"], rates["with"])]
        medians = [statistics.median(rates[k]) for k in ("without", "with")]
        result["cost"] = 1 - medians[1] / medians[0]
        print("without %.0f images/s, with a checkpoint every %d steps %.0f (medians): %.1f%% less;"
              " by rounds %s" % (medians[0], args.every, medians[1], 100 * result["cost"],
                                 ", ".join("%.1f%%" % (100 * c) for c in cost)))
    if pairs:
        more = sorted(a - b for a, b in pairs)
        cut = len(more) // 10
        more = more[cut:len(more) - cut]
        mean = statistics.mean(more)
        error = statistics.stdev(more) / len(more) ** 0.5 if len(more) > 1 else float("nan")
        rest = statistics.median(b for _, b in pairs)
        result["within_cost"] = mean / (rest + mean)
        print("within runs a checkpoint costs %.1f ms (+- %.1f; mean of the middle 80%% of %d) of "
              "%.0f ms for %d steps: %.1f%% less" %
              (1e3 * mean, 1e3 * error, len(pairs), 1e3 * (rest + mean), args.every,
               100 * result["within_cost"]))
    print("\n" + json.dumps(result))
    write_json(result, args.json)


if __name__ == "__main__":
    main()
