"""Measures how Weir scales with the number of workers on one machine, and simulates larger
clusters.

  bench/scale                     1, 2, 4 ... 256 synthetic workers against 1 and 2 real servers on
                                  loopback (sync mode, sgd, no computing): steps/s, goodput, the
                                  time of a step, the server's memory, CPU per GB
  bench/scale --measure=FILE      fits the CPU costs for bench/simulate.py to further runs on this
                                  machine, with different sizes, chunks and numbers of workers, and
                                  writes them to FILE
  bench/scale --predict=FILE      runs the points of the fit and others, prints the results of the
                                  simulation beside the measured ones, and simulates 1,000 workers
                                  with 100 servers on 25 Gbit/s links

Bytes count both ways. Only those of the `--tries` runs of a point count in which other programs
used least of the machine. The table has their median, and the number of cores that other programs
used. The simulation has so many cores less, if it needs them. Start-up, joins and warm-up steps are
not in the rates and CPU times.
"""
import argparse
import itertools
import os
import platform
import sys

import scale_run
import common
import simulate

KB, MB = 1 << 10, 1 << 20
LOAD_ALIKE = 0.1  # cores: runs whose other load differs by less are compared
CLUSTER_LATENCY_S = 30e-6  # assumed, one way, within a data centre
POINT = {"workers": 1, "servers": 1, "model_bytes": MB, "chunk_bytes": 256 * KB, "tensors": 1,
         "mode": "push", "compute_ms": 0.0, "jitter_ms": 0.0, "straggler_ms": 0.0}
# Points of the fit: (workers, model bytes, chunk bytes), always with one server.
FIT_PUSH = [(1, 4 * KB, 4 * KB), (16, 4 * KB, 4 * KB), (1, MB, 16 * KB), (1, MB, 256 * KB),
            (1, 16 * MB, MB), (4, MB, 64 * KB), (4, 4 * MB, 256 * KB), (16, MB, 256 * KB),
            (64, MB, 256 * KB), (64, 256 * KB, 64 * KB), (128, MB, 256 * KB)]
# A pull has no barrier. So only with one worker all bytes are sent within the measured steps.
FIT_PULL = [(1, 4 * KB, 4 * KB), (1, MB, 16 * KB), (1, MB, 256 * KB), (1, 16 * MB, MB)]
# Points outside the fit: other worker counts, sizes, two servers, computing, a straggler.
HELD_OUT = [{"workers": 2}, {"workers": 8}, {"workers": 32}, {"workers": 256},
            {"workers": 2, "model_bytes": 13100000, "chunk_bytes": MB},
            {"workers": 4, "model_bytes": 13100000, "chunk_bytes": MB, "servers": 2},
            {"workers": 16, "servers": 2}, {"workers": 64, "servers": 2},
            {"workers": 12, "model_bytes": 512 * KB, "chunk_bytes": 128 * KB},
            {"workers": 6, "servers": 2, "model_bytes": 2 * MB},
            {"workers": 24, "model_bytes": 4 * MB, "chunk_bytes": MB},
            {"workers": 8, "compute_ms": 20.0, "jitter_ms": 10.0},
            {"workers": 16, "compute_ms": 10.0, "straggler_ms": 50.0}]


def steps_for(point, gb):
    """Returns the number of steps that exchange about `gb` GB, at least 8."""
    each = 2 * point["workers"] * (point["model_bytes"] + 20000)
    waits = point["compute_ms"] + point["jitter_ms"] + point["straggler_ms"]
    most = 4000 if not waits else max(8, int(4000 / waits))
    return int(min(most, max(8, gb * 1e9 / each)))


def best_run(args, **changes):
    """Makes --tries runs of a point, and selects those in which other programs used nearly as
    little of the machine as in the best one. Returns the selected run with the median rate, or None
    if all runs failed."""
    point, runs = dict(POINT, **changes), []
    for _ in range(args.tries):
        try:
            runs.append(scale_run.run(point, steps_for(point, args.gb), args.per_process,
                                      args.deadline_s))
        except scale_run.Failure as e:
            print("bench: %d workers, %d servers: %s" % (point["workers"], point["servers"], e),
                  file=sys.stderr)
    least = min((r["others_cores"] for r in runs), default=0)
    alike = sorted((r for r in runs if r["others_cores"] <= least + LOAD_ALIKE),
                   key=lambda r: r["steps_s"])
    return alike[len(alike) // 2] if alike else None


def table(head, rows):
    print("\n| %s |\n|%s" % (" | ".join(head), " ---: |" * len(head)))
    for row in rows:
        print("| %s |" % " | ".join(row), flush=True)


def machine():
    return {"cpu": common.cpu_model(), "cores": os.cpu_count(), "kernel": platform.release()}


def stated_mb(run):
    """Returns the bound in ps/store/store.h, in MB, for the server with most bytes. The optimizer,
    sgd, has no slots."""
    chunks = simulate.chunk_table(run["model_bytes"], run["chunk_bytes"], run["tensors"])
    owned = [0] * run["servers"]
    for n, server in zip(chunks, simulate.shard(chunks, run["servers"])):
        owned[server] += n
    return max(owned) * (3 + 1 + run["workers"] - 1) / MB


def numbers(text):
    return [int(n) for n in text.split(",")]


def scale(args):
    runs = []
    for servers, workers in itertools.product(numbers(args.servers), numbers(args.workers)):
        got = best_run(args, workers=workers, servers=servers, model_bytes=args.model_bytes,
                       chunk_bytes=args.chunk_bytes, compute_ms=args.compute_ms)
        if got:
            runs.append(dict(got, stated_mb=stated_mb(got)))
            print("bench: %d workers, %d servers: %.1f steps/s" %
                  (workers, servers, got["steps_s"]), file=sys.stderr)
    if not runs:
        sys.exit("bench: no run has figures")
    columns = [("servers", "%d", "servers"), ("workers", "%d", "workers"),
               ("steps/s", "%.1f", "steps_s"), ("GB/s", "%.2f", "gb_s"),
               ("p50 ms", "%.2f", "p50_ms"), ("p99 ms", "%.2f", "p99_ms"),
               ("server peak MB", "%.0f", "server_peak_mb"), ("stated MB", "%.0f", "stated_mb"),
               ("MB/worker", "%.2f", "server_mb_per_worker"),
               ("server CPU s/GB", "%.2f", "server_s_gb"),
               ("workers' CPU s/GB", "%.2f", "client_s_gb"), ("all joined s", "%.2f", "join_s"),
               ("others' cores", "%.2f", "others_cores")]
    table([c[0] for c in columns], [[form % r[key] for _, form, key in columns] for r in runs])
    print("\nServer peak: memory of the largest server's process. Stated: memory of the store by "
          "ps/store/store.h\n"
          "(sgd: 2 versions, 1 sum, up to workers - 1 copies); gRPC has the rest, "
          "for received and sent\nmessages. MB/worker: growth over the idle server, per worker.")
    return {"runs": runs}


# ---- the fit ----

def solve(a, b):
    """Solves a x = b by elimination; returns None if a is singular."""
    n = len(b)
    rows = [list(a[i]) + [b[i]] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        if abs(rows[pivot][i]) < 1e-12:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(n):
            if k != i:
                f = rows[k][i] / rows[i][i]
                rows[k] = [x - f * y for x, y in zip(rows[k], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def least_squares(rows, ys):
    """Returns (x, error): the x >= 0 with the least sum of squared relative errors. Tries every set
    of elements that may be above 0, which is fast with five unknowns."""
    n = len(rows[0])
    scale_of = [max(abs(r[i] / y) for r, y in zip(rows, ys)) or 1.0 for i in range(n)]
    weighed = [[r[i] / y / scale_of[i] for i in range(n)] for r, y in zip(rows, ys)]
    best = ([0.0] * n, float(len(ys)))
    for used in itertools.chain.from_iterable(
            itertools.combinations(range(n), k) for k in range(1, n + 1)):
        a = [[sum(r[i] * r[j] for r in weighed) for j in used] for i in used]
        x = solve(a, [sum(r[i] for r in weighed) for i in used])
        if x is None or min(x) < 0:
            continue
        error = sum((sum(r[i] * v for i, v in zip(used, x)) - 1) ** 2 for r in weighed)
        if error < best[1] - 1e-12:
            full = [0.0] * n
            for i, v in zip(used, x):
                full[i] = v / scale_of[i]
            best = (full, error)
    return best


def fit_row(run, side, share):
    """Returns the factors of Costs.KEYS in the CPU seconds of one step on a side."""
    n = run["workers"] * run["model_bytes"]
    push = run["mode"] == "push"
    to_server, to_worker = n if push else 0, n
    bytes_in, bytes_out = (to_server, to_worker) if side == "server" else (to_worker, to_server)
    return [bytes_in, bytes_out, (bytes_in + bytes_out) * share,
            run["workers"] * run["chunks"], run["workers"] * run["servers"]]


def loops_of(run, loops):
    """Returns the time that a server's loops (update, checksum, copies) need in a step, from their
    measured speeds. If W contributions arrive in random order, 1 + 1/2 + ... + 1/W of them are
    expected to arrive in member order; the server copies all others."""
    if run["mode"] != "push":
        return 0.0
    in_turn = sum(1 / k for k in range(1, run["workers"] + 1))
    return run["model_bytes"] * (loops["update"] + loops["crc"] +
                                 (run["workers"] - in_turn) * loops["copy"])


def fit_costs(runs, loops):
    best = None
    for crowd_half in (1, 2, 4, 8, 16, 32):
        probe = simulate.Costs(crowd_half=crowd_half)
        costs, error = {}, 0.0
        for side, key in (("server", "server_cpu_s"), ("worker", "client_cpu_s")):
            rows, ys = [], []
            for r in runs:
                share = probe.crowd_share(r["workers"] * r["servers"])
                known = loops_of(r, loops) if side == "server" else 0.0
                rows.append(fit_row(r, side, share))
                ys.append(max(r[key] - known, 0.1 * r[key]))
            x, e = least_squares(rows, ys)
            costs[side], error = dict(zip(simulate.Costs.KEYS, x)), error + e
        if best is None or error < best[1]:
            best = (dict(costs, loops=loops, crowd_half=crowd_half), error,
                    (error / (2 * len(runs))) ** 0.5)
    return simulate.Costs(**best[0]), best[2]


def measure(args):
    loops = scale_run.primitives(256 * KB)
    runs = []
    for mode, points in (("push", FIT_PUSH), ("pull", FIT_PULL)):
        for workers, model, chunk in points:
            got = best_run(args, workers=workers, model_bytes=model, chunk_bytes=chunk, mode=mode)
            if got:
                runs.append(got)
                print("bench: %s, %d workers, %d KB in %d chunks: %.1f steps/s, CPU %.1f + %.1f "
                      "ms a step" % (mode, workers, model / KB, got["chunks"], got["steps_s"],
                                     got["server_cpu_s"] * 1e3, got["client_cpu_s"] * 1e3),
                      file=sys.stderr)
    if len(runs) < 10:
        sys.exit("bench: too few runs for a fit")
    costs, rms = fit_costs(runs, loops)
    smallest = next((r for r in runs if r["mode"] == "push" and r["workers"] == 1 and
                     r["model_bytes"] == 4 * KB), None)
    latency = 0.0
    if smallest:
        alone = simulate.simulate(costs, steps=4, shared_cores=os.cpu_count(), **sim_spec(smallest))
        latency = max(0.0, smallest["p50_ms"] * 1e-3 - alone["step_s"]) / 2
    result = {"machine": machine(), "costs": costs.as_dict(), "latency_s": latency,
              "rms_error": rms, "runs": runs}
    print("\nFitted CPU costs (relative error of a run's CPU seconds: %.0f%% rms; half of "
          "a crowd: %d connections beside the first):" % (rms * 100, costs.crowd_half))
    table(["side"] + ["s/GB in", "s/GB out", "s/GB crowd", "us/chunk", "us/stream and step"],
          [[side] + ["%.3f" % (c[k] * 1e9) for k in simulate.Costs.KEYS[:3]] +
           ["%.1f" % (c[k] * 1e6) for k in simulate.Costs.KEYS[3:]]
           for side, c in (("server", costs.server), ("worker", costs.worker))])
    print("\nLoops, s/GB: %s. Wait of a hop on loopback: %.0f us." %
          (", ".join("%s %.3f" % (k, v * 1e9) for k, v in loops.items()), latency * 1e6))
    common.write_json(result, args.measure, 1)
    return result


# ---- the prediction ----

def sim_spec(run):
    return {"workers": run["workers"], "servers": run["servers"],
            "chunks": simulate.chunk_table(run["model_bytes"], run["chunk_bytes"], run["tensors"]),
            "compute_s": run["compute_ms"] * 1e-3, "jitter_s": run["jitter_ms"] * 1e-3,
            "straggler_s": run["straggler_ms"] * 1e-3}


def predict_run(costs, latency_s, run):
    """Simulates all programs of a run on this machine's cores. Other programs slow the job down
    only if the machine lacks cores, that is, if the cores that the job would use alone and those
    that other programs use are more than the machine has."""
    cores = os.cpu_count()
    steps = 4 if not run["jitter_ms"] else 40
    spec = dict(sim_spec(run), latency_s=latency_s, shared_cores=cores, steps=steps)
    said = simulate.simulate(costs, **spec)
    wanted = said["use"]["the machine's cores"] * cores
    slowdown = wanted / max(0.2, cores - run["others_cores"])
    return said if slowdown <= 1 else simulate.simulate(costs, slowdown=slowdown, **spec)


def point_name(r):
    name = "%d x %d, %.4g MB by %d KB" % (r["workers"], r["servers"], r["model_bytes"] / 1e6,
                                          r["chunk_bytes"] / KB)
    for key in ("compute_ms", "jitter_ms", "straggler_ms"):
        name += ", %s %g ms" % (key[:-3], r[key]) if r[key] else ""
    return name


def compare(costs, latency_s, runs, what):
    rows, errors = [], []
    for r in runs:
        said = predict_run(costs, latency_s, r)
        errors.append((said["steps_s"] / r["steps_s"] - 1) * 100)
        rows.append([point_name(r), what, "%.1f" % r["steps_s"], "%.1f" % said["steps_s"],
                     "%+.0f%%" % errors[-1], said["bottleneck"], "%.2f" % r["others_cores"]])
    return rows, errors


def cluster(costs, args):
    rows, results = [], []
    for model, chunk, cores in ((13100000, MB, 2), (13100000, 128 * KB, 2), (13100000, 128 * KB, 8),
                                (400000000, MB, 2), (400000000, MB, 8)):
        said = simulate.simulate(costs, workers=args.cluster_workers, servers=args.cluster_servers,
                                 gbit=args.gbit, latency_s=CLUSTER_LATENCY_S, model_bytes=model,
                                 chunk_bytes=chunk, server_cores=cores, steps=3)
        results.append(dict(said, model_bytes=model, chunk_bytes=chunk, server_cores=cores))
        use = sorted(said["use"].items(), key=lambda item: -item[1])
        rows.append(["%.4g MB" % (model / 1e6), "%d KB" % (chunk / KB), "%d" % cores,
                     "%.1f" % (said["step_s"] * 1e3), "%.2f" % said["steps_s"],
                     "%.0f" % said["gb_s"], said["bottleneck"],
                     ", ".join("%s %.0f%%" % (k, v * 100) for k, v in use if v > 0)])
    print("\nSimulated: %d workers, %d servers, links of %g Gbit/s, %.0f us a hop (assumed), no "
          "computing:" % (args.cluster_workers, args.cluster_servers, args.gbit,
                          CLUSTER_LATENCY_S * 1e6))
    table(["model", "chunk", "server cores", "step ms", "steps/s", "GB/s in all", "bottleneck",
           "busy"], rows)
    print("\nBusy: the busiest of each kind; if no kind is near 100%, up and down alternate.\n"
          "CPU costs are those of loopback: a network card's interrupts and loss are not in them.")
    return results


def mean_size(errors):
    return sum(abs(e) for e in errors) / len(errors) if errors else 0.0


def predict(args):
    costs, data = simulate.load_costs(args.predict)
    held_out = [r for r in (best_run(args, **p) for p in HELD_OUT) if r]
    fitted = [r for r in data["runs"] if r["mode"] == "push"]
    rows, new = compare(costs, data["latency_s"], held_out, "held out")
    old_rows, old = compare(costs, data["latency_s"], fitted, "fitted")
    table(["workers x servers, model", "point", "measured steps/s", "simulated", "error",
           "simulated bottleneck", "others' cores"], rows + old_rows)
    print("\nMean size of the error: held out %.0f%% (worst %.0f%%); fitted %.0f%% (worst "
          "%.0f%%)." % (mean_size(new), max(map(abs, new), default=0),
                                      mean_size(old), max(map(abs, old), default=0)))
    return {"held_out": held_out, "held_out_errors": new, "fitted_errors": old,
            "cluster": cluster(costs, args)}


def parse():
    parser = argparse.ArgumentParser(prog="bench/scale", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,4,8,16,32,64,128,256")
    parser.add_argument("--servers", default="1,2")
    parser.add_argument("--model_bytes", type=int, default=MB)
    parser.add_argument("--chunk_bytes", type=int, default=256 * KB)
    parser.add_argument("--compute_ms", type=float, default=0.0, help="simulated compute time")
    parser.add_argument("--per_process", type=int, default=64, help="workers in one process")
    parser.add_argument("--gb", type=float, default=2.0, help="approximate GB to move in a run")
    parser.add_argument("--tries", type=int, default=3, help="runs of a point")
    parser.add_argument("--deadline_s", type=int, default=120, help="longest time of one run")
    parser.add_argument("--json", metavar="FILE", help="the figures, in full")
    parser.add_argument("--measure", metavar="FILE", help="fit the costs, write them to FILE")
    parser.add_argument("--predict", metavar="FILE", help="check the simulation with these costs")
    parser.add_argument("--gbit", type=float, default=25.0, help="links of the simulated cluster")
    parser.add_argument("--cluster_workers", type=int, default=1000)
    parser.add_argument("--cluster_servers", type=int, default=100)
    return parser.parse_args()


def main():
    args = parse()
    try:
        result = (measure(args) if args.measure else predict(args) if args.predict
                  else scale(args))
    except scale_run.Failure as e:
        sys.exit("bench: %s" % e)
    except KeyboardInterrupt:
        sys.exit(130)
    common.write_json(dict(result, machine=machine()), args.json, 1)


if __name__ == "__main__":
    main()
