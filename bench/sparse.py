"""Measures samples/s, CPU seconds and memory of a net with one large embedding table. All rows are
measured in one run on one machine:

  model   Weir's own worker program with a model file and a sparse table, mode sync: 1 ps and 2
          workers
  tables  a sparse table of Weir's servers (weir.torch.Embedding), mode sync: 1 ps and 2 workers;
          each step names the keys of the next batch
  async   the same in mode async, in which rows are read when a step begins
  dense   torch.nn.Embedding with Weir's servers: each step moves the whole table
  ddp     torch.nn.Embedding(sparse=True) and DistributedDataParallel over gloo: 2 ranks
  paddle  PaddlePaddle 2.6.2's parameter server, which is no longer maintained, mode async: 1
          server and 2 workers
  alone   2 processes that do not communicate: the limit of all others

    bench/train --setup2              # makes the venv of the next line but one
    bench/peers --setup paddle        # makes the venv of paddle
    build/venv-torch2/bin/python bench/sparse.py

A sample has --keys keys, log-uniform in [0, --rows); their rows are the input of 3 hidden layers of
--width and a sigmoid. The optimizer is Adam, for rows torch.optim.SparseAdam or Weir's equal. Rows
begin with zeros and layers with the same values, so tables and ddp train alike; the run fails if
their late losses differ. In model, rows and layers begin with other values (zeros in both rows and
biases would stop at the first relu), and the samples are others of the same distribution. The first
--warmup steps and start-up are not timed. Rounds of the rows alternate, every second one in reverse
order, and the results are medians. CPU seconds are per 1,000 samples and include those of the
server; memory is the highest RSS of a process."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import peers_env
import sparse_model
import two_members
from common import SOURCE, free_ports, machine, wait_all, write_json

RUN = os.path.join(SOURCE, "bench/sparse_run.py")
MODEL = os.path.join(SOURCE, "bench/sparse_model.py")
PADDLE = os.path.join(SOURCE, "bench/sparse_paddle.py")
NAMES = {"model": "Weir's worker, sync",
         "tables": "sparse table, sync", "async": "sparse table, async",
         "dense": "dense parameters, sync", "ddp": "DDP on gloo, sparse gradients",
         "paddle": "PaddlePaddle 2.6.2, async",
         "alone": "2 processes that do not communicate"}
WEIR = ("model", "tables", "async", "dense")  # kinds with servers
ALLOW_LOSS = 2e-2  # largest relative difference between the late losses of tables and ddp


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=150, help="steps of a round, after --warmup")
    p.add_argument("--dense_steps", type=int, default=20, help="steps of a round of dense")
    p.add_argument("--warmup", type=int, default=10)
    p.add_argument("--rows", type=int, default=1000000)
    p.add_argument("--dim", type=int, default=16)
    p.add_argument("--keys", type=int, default=26, help="keys of a sample")
    p.add_argument("--width", type=int, default=400, help="of the hidden layers")
    p.add_argument("--batch", type=int, default=512, help="samples of a worker")
    p.add_argument("--threads", type=int, default=1, help="PyTorch's, in each process")
    p.add_argument("--kinds", default=",".join(NAMES))
    p.add_argument("--limit", type=int, default=600, help="seconds for one round of one kind")
    p.add_argument("--json", metavar="FILE", help="also write the figures here")
    return p.parse_args()


def options(args, kind, rank, servers, folder, addresses=()):
    steps = args.warmup + (args.dense_steps if kind == "dense" else args.steps)
    if kind == "async":
        steps *= 2  # each contribution is a step of the job
    return json.dumps({"kind": kind, "rank": rank, "servers": servers, "warmup": args.warmup,
                       "folder": folder, "steps": steps, "rows": args.rows, "dim": args.dim,
                       "keys": args.keys, "width": args.width, "batch": args.batch,
                       "threads": args.threads, "addresses": addresses})


def run_paddle(args):
    """Returns what two_members.run() returns, of a server and two trainers of PaddlePaddle."""
    addresses = ["127.0.0.1:%d" % port for port in free_ports(3)]
    env = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "CPU_NUM": "1"}

    def start(rank, servers):
        return subprocess.Popen([peers_env.python(None, "paddle"), PADDLE, options(
            args, "paddle", rank, servers, "", addresses)], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    server = start(-1, [])
    try:
        ranks = [start(rank, [server.pid] if rank == 0 else []) for rank in range(2)]
        printed = wait_all(ranks, "paddle", args.limit)
        return [json.loads(text) for text in printed], two_members.rss(server.pid)
    finally:
        server.kill()
        server.communicate()


def round_of(args, kind):
    """Returns {figure: value} of one round."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "model":
            sparse_model.samples(folder, vars(args))
        ranks, server = run_paddle(args) if kind == "paddle" else two_members.run(
            kind in WEIR, lambda rank, servers: [
                sys.executable, MODEL if kind == "model" else RUN,
                options(args, kind, rank, servers, folder)], kind, args.limit)
    seconds = max(r["to"] for r in ranks) - min(r["from"] for r in ranks)
    samples = args.batch * sum(len(r["losses"]) - args.warmup for r in ranks)
    of_servers = sum(r["cpu_of_servers"] for r in ranks)
    cpu = sum(r["cpu"] for r in ranks) + of_servers
    late = [loss for r in ranks for loss in r["losses"][-max(1, args.steps // 4):]]
    return {"samples_per_s": samples / seconds, "cpu_ms_per_1000": 1e6 * cpu / samples,
            "servers_cpu_ms_per_1000": 1e6 * of_servers / samples,
            "rss": max(r["rss"] for r in ranks), "server_rss": server,
            "loss": statistics.mean(late)}


def report(args, rounds):
    median = {kind: {name: statistics.median(r[name] for r in of) for name in of[0]}
              for kind, of in rounds.items()}
    print("\n%s; PyTorch %s, %d thread(s); %d x %d rows, %d keys a sample, 3 x %d; batch %d of a "
          "worker; %d steps; median of %d interleaved rounds:\n" % (
              machine(), two_members.torch_version(), args.threads, args.rows, args.dim, args.keys,
              args.width, args.batch, args.steps, args.rounds))
    print("| | samples/s | lowest to highest | CPU ms per 1,000 samples | of it server | "
          "MB of a worker | MB of ps | loss |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
    for kind, m in median.items():
        speeds = [r["samples_per_s"] for r in rounds[kind]]
        print("| %s | %.0f | %.0f to %.0f | %.1f | %.1f | %.0f | %.0f | %.4f |" % (
            NAMES[kind], m["samples_per_s"], min(speeds), max(speeds), m["cpu_ms_per_1000"],
            m["servers_cpu_ms_per_1000"], m["rss"], m["server_rss"], m["loss"]))
    for one in ("model", "tables"):
        for other in ("ddp", "paddle", "alone", "dense"):
            if {one, other} <= median.keys():
                ratios = [a["samples_per_s"] / b["samples_per_s"]
                          for a, b in zip(rounds[one], rounds[other])]
                print("\nsamples/s, %s to %s, round by round: median %.2f (%.2f to %.2f)" % (
                    NAMES[one], NAMES[other], statistics.median(ratios), min(ratios),
                    max(ratios)))
    write_json({"machine": machine(), "options": vars(args), "rounds": rounds}, args.json)
    if {"tables", "ddp"} <= median.keys():
        a, b = median["tables"]["loss"], median["ddp"]["loss"]
        if not abs(a - b) <= ALLOW_LOSS * b:
            sys.exit("bench: tables and ddp do not train alike, so their speeds cannot be compared")


def main():
    args = parse()
    if "paddle" in args.kinds.split(",") and peers_env.reason(None, "paddle"):
        sys.exit("bench: paddle: " + peers_env.reason(None, "paddle"))
    report(args, two_members.rounds(args, NAMES, round_of, lambda r: (
        "%7.0f samples/s, CPU %.1f ms per 1,000" % (r["samples_per_s"], r["cpu_ms_per_1000"]))))


if __name__ == "__main__":
    main()
