"""Measures how many rows of a sparse table one server pushes and pulls, in millions for each
second of the server's processor time: 1 ps and 2 members, mode sync. In each step each member
pushes gradients of log-uniform keys, and names the keys of its next step, whose rows the answer
has. A member counts each key of a step once. The kinds are the ways between programs:

  shm   shared memory between programs of one host (the default)
  tcp   --shared_memory=off, as between hosts

    build/venv-torch2/bin/python bench/sparse_rows.py      # bench/train --setup2 makes that venv

The table has --dim floats for each row and Adagrad; each step's keys are new draws. A member makes
its keys before the timed steps. Rounds of the kinds alternate; the results are medians. Programs
with more members or models have more work between the steps, and a server then waits more."""
import argparse
import json
import math
import os
import statistics
import sys

import torch
import two_members
import weir
from common import machine, write_json
from member_clock import Clock

NAMES = {"shm": "shared memory", "tcp": "TCP on loopback"}
DRAWS = 32  # sets of keys that a member uses in turn


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=200, help="steps of a round, after --warmup")
    p.add_argument("--warmup", type=int, default=50, help="steps that create most rows")
    p.add_argument("--rows", type=int, default=1000000, help="keys are below this number")
    p.add_argument("--dim", type=int, default=16)
    p.add_argument("--keys", type=int, default=32768, help="keys of a member in a step, with "
                   "repeated ones")
    p.add_argument("--kinds", default=",".join(NAMES))
    p.add_argument("--limit", type=int, default=600, help="seconds for one round of one kind")
    p.add_argument("--json", metavar="FILE", help="also write the figures here")
    return p.parse_args()


def draw_keys(o):
    draw = torch.Generator().manual_seed(1000 + o["rank"])
    return [(torch.rand(o["keys"], generator=draw, dtype=torch.float64) * math.log(o["rows"]))
            .exp().long().unique() for _ in range(DRAWS)]


def member(o):
    """Trains as one of the members, and prints its costs."""
    keys = draw_keys(o)
    gradients = torch.full((o["keys"], o["dim"]), 1e-3)
    m = weir.Member(train_steps=o["steps"], batch_size=1, optimizer="sgd", learning_rate=1e-3,
                    shared_memory="auto" if o["kind"] == "shm" else "off")
    dense = m.param("dense", [1])
    table = m.table("rows", o["dim"], 2 * o["rows"], optimizer="adagrad", learning_rate=1e-3)
    clock, rows = Clock(o["warmup"], o["servers"]), 0
    for step in m:
        clock.at(step.step)
        now, following = keys[step.step % DRAWS], keys[(step.step + 1) % DRAWS]
        if step.step >= o["warmup"]:
            rows += len(now)
        m.next_keys(table, following)
        m.push_rows(table, now, gradients[:len(now)], samples=1)
        m.push(dense, gradients[0, :1], samples=1)
        m.lookup(table, following)
        if step.step + 1 == step.train_steps:
            end = clock.now()  # the servers end after the last step
    clock.losses.append(rows)
    clock.report(end)


def round_of(args, kind):
    """Returns {figure: value} of one round."""
    options = {name: getattr(args, name) for name in ("warmup", "rows", "dim", "keys")}
    ranks, server = two_members.run(True, lambda rank, servers: [
        sys.executable, os.path.abspath(__file__), "--member=" + json.dumps(
            {**options, "kind": kind, "rank": rank, "servers": servers,
             "steps": args.steps + args.warmup})], kind, args.limit)
    seconds = max(r["to"] for r in ranks) - min(r["from"] for r in ranks)
    rows = sum(r["losses"][-1] for r in ranks)
    return {"per_server_second": rows / sum(r["cpu_of_servers"] for r in ranks) / 1e6,
            "per_member_second": rows / sum(r["cpu"] for r in ranks) / 1e6,
            "per_second": rows / seconds / 1e6, "server_rss": server}


def main():
    if len(sys.argv) == 2 and sys.argv[1].startswith("--member="):
        return member(json.loads(sys.argv[1][9:]))
    args = parse()
    rounds = two_members.rounds(args, NAMES, round_of, lambda r: (
        "%.2f M rows for a second of the server's processor time" % r["per_server_second"]))
    print("\n%s; table of %d x %d, Adagrad, %d log-uniform keys of a member in a step; 2 members; "
          "median of %d interleaved rounds (lowest to highest), million rows pushed and pulled:\n"
          % (machine(), args.rows, args.dim, args.keys, args.rounds))
    print("| | for a second of the server's processor time | of the members' | by the clock | "
          "MB of ps |\n| --- | --- | --- | --- | --- |")
    for kind in rounds:
        cells = []
        for figure in ("per_server_second", "per_member_second", "per_second"):
            of = [r[figure] for r in rounds[kind]]
            cells.append("%.2f (%.2f to %.2f)" % (statistics.median(of), min(of), max(of)))
        print("| %s | %s | %.0f |" % (NAMES[kind], " | ".join(cells), statistics.median(
            r["server_rss"] for r in rounds[kind])))
    write_json({"machine": machine(), "options": vars(args), "rounds": rounds}, args.json)
    return None


if __name__ == "__main__":
    main()
