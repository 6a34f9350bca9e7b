"""Runs the two members of a benchmark, with one server or as two ranks of PyTorch."""
import json
import os
import subprocess
import sys
import time

from common import SOURCE, free_ports, in_turns, wait_all

BUILD = os.path.join(SOURCE, "build")
os.environ.setdefault("WEIR_LIBRARY", os.path.join(BUILD, "lib/libweir.so.0"))
os.environ.setdefault("WEIR_PROGRAMS", os.path.join(BUILD, "bin"))
sys.path.insert(0, os.path.join(SOURCE, "python"))
import weir  # noqa: E402


def rounds(args, names, round_of, describe):
    """Returns {kind: [figures of each round]} for the kinds of args.kinds, whose rounds alternate.
    names: all kinds; round_of(args, kind) returns figures, which describe(figures) prints."""
    kinds = args.kinds.split(",")
    if not set(kinds) <= set(names):
        sys.exit("bench: --kinds is a list of %s" % ", ".join(names))
    found = {kind: [] for kind in kinds}
    for i, kind in in_turns(args.rounds, kinds):
        found[kind].append(round_of(args, kind))
        print("round %d of %d: %-6s %s" % (i + 1, args.rounds, kind, describe(found[kind][-1])),
              file=sys.stderr, flush=True)
    return found


def run(has_server, argv, what, limit):
    """Returns (what each member printed, highest memory of the server in MB). argv(rank, servers)
    returns a member's command; servers are the process numbers of those servers that this member
    measures. limit: seconds."""
    return with_server(argv, limit) if has_server else without_server(argv, what, limit)


def with_server(argv, limit):
    with weir.Cluster(n_workers=2) as cluster:
        ps = cluster.processes["ps:0"]
        for i in range(2):
            cluster.start_worker(i, argv(i, [ps.popen.pid] if i == 0 else []))
        peak, deadline = 0, time.monotonic() + limit
        while True:
            peak = max(peak, rss(ps.popen.pid))
            try:
                cluster.wait(0.2)  # a failure is reported at once
                break
            except weir.Timeout:
                if time.monotonic() > deadline:
                    raise
        return [json.loads(cluster.output("worker:%d" % i)) for i in range(2)], peak


def without_server(argv, what, limit):
    env = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
           "MASTER_PORT": str(free_ports(1)[0]), "GLOO_SOCKET_IFNAME": "lo",
           "PYTHONPATH": os.path.join(SOURCE, "python")}
    ranks = [subprocess.Popen(argv(rank, []), env={**env, "RANK": str(rank)},
                              stdout=subprocess.PIPE, text=True,
                              start_new_session=True)  # as weir.Cluster does
             for rank in range(2)]
    return [json.loads(text) for text in wait_all(ranks, what, limit)], 0


def rss(pid):
    """Returns the highest memory of a process so far, in MB; 0: the process has ended."""
    try:
        with open("/proc/%d/status" % pid, encoding="ascii") as f:
            return next((int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def torch_version():
    return subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"],
                          stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
