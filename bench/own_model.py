"""Measures tokens/s, CPU seconds and memory of a small GPT (examples/python/char_gpt.py, of any
size) with its own training loop in PyTorch. All rows are measured in one run on one machine:

  weir   weir.torch.Exchange: 1 ps and 2 workers
  early  the same with early=True: the next forward waits for its parameters layer by layer
  own    the same with the script's own optimizer: step() sends the gradients, and waits
  ddp    DistributedDataParallel over gloo: 2 ranks
  alone  2 processes that do not communicate: the limit of both

    build/venv-torch2/bin/python bench/own_model.py      # bench/train --setup2 makes that venv

All rows have the same first values, batches and hyperparameters of AdamW. PyTorch uses its fused
AdamW, and DDP computes gradients directly in its buckets. The run fails if weir and ddp do not
reach the same losses. Rounds of the rows alternate, every second one in reverse order, and the
results are medians. CPU seconds are per 1,000 tokens and include those of servers; other programs
on the machine hardly change them. On a busy machine tokens/s may favour the row with more
processes: Linux may divide the machine by sessions (autogroup), and each process has its own
session. The first --warmup steps, start-up and PyTorch's import are not timed. Memory is the
highest RSS of each process, including PyTorch's libraries."""
import argparse
import json
import os
import statistics
import sys

import two_members
from common import SOURCE, machine, write_json

RUN = os.path.join(SOURCE, "bench/own_model_run.py")
NAMES = {"weir": "Weir, 1 ps and 2 workers", "early": "Weir with early=True",
         "own": "Weir with the script's optimizer",
         "ddp": "DDP on gloo, 2 ranks",
         "alone": "2 processes that do not communicate"}
WEIR = ("weir", "early", "own")  # kinds with servers
ALLOW_LOSS = 1e-3  # largest difference between the late losses (last quarter) of weir and ddp
CONTEXT = 64  # tokens of a sample, as in char_gpt.py


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=200, help="steps of a round, after --warmup")
    p.add_argument("--warmup", type=int, default=20)
    p.add_argument("--width", type=int, default=64, help="width of the GPT; 64: the example's")
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--batch", type=int, default=16, help="samples of 64 tokens, of a worker")
    p.add_argument("--threads", type=int, default=1, help="PyTorch's, in each process")
    p.add_argument("--kinds", default="weir,early,own,ddp,alone")
    p.add_argument("--limit", type=int, default=600, help="seconds for one round of one kind")
    p.add_argument("--trace", metavar="PREFIX", help="Weir's workers write PREFIX-0.json and -1, "
                   "for bench/trace_merge")
    p.add_argument("--json", metavar="FILE", help="also write the figures here")
    return p.parse_args()


def options(args, kind, rank, servers=()):
    return json.dumps({"kind": kind, "rank": rank, "steps": args.steps + args.warmup,
                       "warmup": args.warmup, "width": args.width, "layers": args.layers,
                       "batch": args.batch, "threads": args.threads, "servers": list(servers),
                       "trace": args.trace})


def round_of(args, kind):
    """Returns {figure: value} of one round."""
    ranks, server = two_members.run(kind in WEIR, lambda rank, servers: [
        sys.executable, RUN, options(args, kind, rank, servers)], kind, args.limit)
    seconds = max(r["to"] for r in ranks) - min(r["from"] for r in ranks)
    tokens = 2 * args.batch * CONTEXT * args.steps
    cpu = sum(r["cpu"] for r in ranks)
    of_servers = sum(r["cpu_of_servers"] for r in ranks)
    late = [loss for r in ranks for loss in r["losses"][-max(1, args.steps // 4):]]
    return {"tokens_per_s": tokens / seconds, "cpu_ms_per_1000": 1e6 * (cpu + of_servers) / tokens,
            "servers_cpu_ms_per_1000": 1e6 * of_servers / tokens,
            "rss": max(r["rss"] for r in ranks), "server_rss": server,
            "loss": statistics.mean(late)}


def report(args, rounds):
    median = {kind: {name: statistics.median(r[name] for r in of) for name in of[0]}
              for kind, of in rounds.items()}
    print("\n%s; PyTorch %s, %d thread(s); GPT of %d layers, width %d; batch %d x %d tokens a "
          "worker; %d steps; median of %d interleaved rounds:\n" % (
              machine(), two_members.torch_version(), args.threads, args.layers, args.width,
              args.batch, CONTEXT, args.steps, args.rounds))
    print("| | tokens/s | lowest to highest | CPU ms per 1,000 tokens | of it servers | "
          "MB of a worker | MB of ps |\n| --- | --- | --- | --- | --- | --- | --- |")
    for kind, m in median.items():
        speeds = [r["tokens_per_s"] for r in rounds[kind]]
        print("| %s | %.0f | %.0f to %.0f | %.1f | %.1f | %.0f | %.0f |" % (
            NAMES[kind], m["tokens_per_s"], min(speeds), max(speeds), m["cpu_ms_per_1000"],
            m["servers_cpu_ms_per_1000"], m["rss"], m["server_rss"]))
    for kind in WEIR:
        if {kind, "ddp"} <= median.keys():
            compare(rounds, median, kind)
    write_json({"machine": machine(), "options": vars(args), "rounds": rounds}, args.json)


def compare(rounds, median, kind):
    pairs = list(zip(rounds[kind], rounds["ddp"]))
    for name, what in (("tokens_per_s", "tokens/s"), ("cpu_ms_per_1000", "CPU seconds")):
        ratios = [a[name] / b[name] for a, b in pairs]
        print("\n%s, %s to DDP, round by round: median %.3f (%.3f to %.3f)" % (
            what, NAMES[kind], statistics.median(ratios), min(ratios), max(ratios)))
    a, b = median[kind]["loss"], median["ddp"]["loss"]
    print("loss, mean of the last quarter: %s %.6f, DDP %.6f" % (NAMES[kind], a, b))
    if not abs(a - b) <= ALLOW_LOSS * b:
        sys.exit("bench: these do not train alike, so their speeds cannot be compared")


def main():
    args = parse()
    report(args, two_members.rounds(args, NAMES, round_of, lambda r: (
        "%7.0f tokens/s, CPU %.1f ms per 1,000" % (r["tokens_per_s"], r["cpu_ms_per_1000"]))))


if __name__ == "__main__":
    main()
