"""Measures a large sparse table: 1 ps and 1 member, Adagrad, --rows rows of --dim floats. The
member first creates all rows, and then trains: each step pushes gradients of --keys log-uniform
keys, and reads the rows of as many others. During the training, checkpoints are requested. Reports
the rows that are created in a second, the memory of the server, and the rows that are pushed and
pulled in a second, while a checkpoint is written and in windows of equal length between them.

    build/venv/bin/python bench/sparse_large.py --rows=100000000      # scripts/get_torch makes it

The folder below --folder needs room for two checkpoints."""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from common import machine, write_json
from two_members import BUILD, rss, weir

DRAWS = 32  # sets of keys that the member uses in turn
FILL = 1 << 16  # rows that one step creates
MORE = 1 << 40  # steps: the run ends before them


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", type=int, default=10000000)
    p.add_argument("--dim", type=int, default=16)
    p.add_argument("--keys", type=int, default=32768, help="keys of a step, with repeated ones")
    p.add_argument("--checkpoints", type=int, default=3)
    p.add_argument("--row_dtype", default="fp32", choices=("fp32", "bf16"))
    p.add_argument("--folder", default="/var/tmp", help="folder on the disk that is measured")
    p.add_argument("--limit", type=int, default=1800, help="seconds for the creation of the rows")
    p.add_argument("--json", metavar="FILE", help="also write the figures here")
    return p.parse_args()


def member(o):
    """Trains, and prints the time at which the first row is made, then that at which all rows are
    made, and then (time, rows so far) of each step."""
    draw = torch.Generator().manual_seed(1)
    keys = [(torch.rand(o["keys"], generator=draw, dtype=torch.float64) * math.log(o["rows"]))
            .exp().long().unique() for _ in range(DRAWS)]
    gradients = torch.full((max(FILL, o["keys"]), o["dim"]), 1e-3)
    n_fill = -(-o["rows"] // FILL)
    with weir.Member(train_steps=MORE, batch_size=1, optimizer="sgd", learning_rate=1e-3) as m:
        dense = m.param("dense", [1])
        table = m.table("rows", o["dim"], o["rows"] + o["rows"] // 10, optimizer="adagrad",
                        learning_rate=1e-3, row_dtype=o["row_dtype"])

        def keys_of(step):
            if step < n_fill:
                return torch.arange(step * FILL, min(o["rows"], (step + 1) * FILL))
            return keys[step % DRAWS]

        done = 0
        for step in m:
            now, following = keys_of(step.step), keys_of(step.step + 1)
            if step.step in (0, n_fill):
                print(json.dumps([time.monotonic(), 0]), flush=True)
            elif step.step > n_fill:
                print(json.dumps([time.monotonic(), done]), flush=True)
            m.next_keys(table, following)
            m.push_rows(table, now, gradients[:len(now)], samples=1)
            m.push(dense, gradients[0, :1], samples=1)
            m.lookup(table, following)
            done += len(now) if step.step >= n_fill else 0


def lines(cluster):
    """Returns the member's [time, rows] so far."""
    found = []
    for line in cluster.output("worker:0").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            pass  # a line that is not whole yet, or a message
    return found


def rate(cluster, begin, end):
    """Returns the million rows per second between two times."""
    some = [(t, n) for t, n in lines(cluster)[2:] if begin <= t <= end]
    if len(some) < 3:
        sys.exit("bench: the window has too few steps")
    return (some[-1][1] - some[0][1]) / (some[-1][0] - some[0][0]) / 1e6


def wait_until(cluster, limit, is_done):
    deadline = time.monotonic() + limit
    while not is_done():
        if time.monotonic() > deadline:
            sys.exit("bench: no end within %d s" % limit)
        try:
            cluster.wait(0.5)
            sys.exit("bench: the job has ended early")
        except weir.Timeout:
            pass


def checkpoint(cluster):
    """Requests a checkpoint, waits for it, and returns the times of its begin and end."""
    begin = time.monotonic()
    subprocess.run([os.path.join(BUILD, "bin/weirctl"), "--ps_hosts=" + cluster.ps_hosts[0],
                    "checkpoint", "--wait"], check=True, stdout=subprocess.DEVNULL)
    return begin, time.monotonic()


def measure(args, folder):
    with weir.Cluster(n_workers=1, checkpoint_dir=folder, ps_flags=[
            "--save_steps=0", "--save_secs=0", "--keep_checkpoint_max=1",
            "--max_model_bytes=%d" % (1 << 40)]) as cluster:
        options = {name: getattr(args, name) for name in ("rows", "dim", "keys", "row_dtype")}
        cluster.start_worker(0, [sys.executable, os.path.abspath(__file__),
                                 "--member=" + json.dumps(options)])
        ps = cluster.processes["ps:0"].popen.pid
        wait_until(cluster, args.limit, lambda: len(lines(cluster)) > 20)
        filled = lines(cluster)[1][0] - lines(cluster)[0][0]
        full, rows = rss(ps), []
        print("%.0f s for the rows; ps has %.0f MB" % (filled, full), file=sys.stderr)
        seconds = 10.0
        for _ in range(args.checkpoints):
            begin = time.monotonic()
            wait_until(cluster, args.limit, lambda: time.monotonic() > begin + seconds)
            wrote = checkpoint(cluster)
            seconds = wrote[1] - wrote[0]
            rows.append({"before": rate(cluster, begin, wrote[0]), "during": rate(cluster, *wrote),
                         "seconds": seconds})
            print(rows[-1], file=sys.stderr, flush=True)
        begin = time.monotonic()
        wait_until(cluster, args.limit, lambda: time.monotonic() > begin + seconds)
        size = max(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
        return {"created_m_per_s": args.rows / filled / 1e6, "rss_full": full,
                "rss": rss(ps), "file_mb": size / 1e6, "checkpoints": rows,
                "after": rate(cluster, begin, begin + seconds)}


def main():
    if len(sys.argv) == 2 and sys.argv[1].startswith("--member="):
        return member(json.loads(sys.argv[1][9:]))
    args = parse()
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir=args.folder) as folder:
        r = measure(args, folder)
    found = r["checkpoints"]
    quiet = [c["before"] for c in found] + [r["after"]]  # windows before, between and after
    cost = [1 - 2 * c["during"] / (a + b) for c, a, b in zip(found, quiet, quiet[1:])]
    print("\n%s; %d x %d rows, %s, Adagrad; %d log-uniform keys in a step; 1 member\n"
          "created: %.2f M rows/s; ps: %.0f MB when all rows exist (%.0f bytes a row), at most "
          "%.0f MB; file: %.0f MB, written in %.0f s (median)\n"
          "pushed and pulled: %.2f M rows/s without, %.2f while a checkpoint is written (medians); "
          "a checkpoint costs %s of the time in which it is written" % (
              machine(), args.rows, args.dim, args.row_dtype, args.keys, r["created_m_per_s"],
              r["rss_full"], 1e6 * r["rss_full"] / args.rows, r["rss"], r["file_mb"],
              statistics.median(c["seconds"] for c in found), statistics.median(quiet),
              statistics.median(c["during"] for c in found),
              ", ".join("%.1f %%" % (100 * c) for c in cost)))
    write_json({"machine": machine(), "options": vars(args), **r}, args.json)
    return None


if __name__ == "__main__":
    main()
