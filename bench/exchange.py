"""Measures how fast workers and servers exchange a model on this machine, and the machine's limits.

The measurement uses loopback, the real program ps (sync mode: the servers add gradients and apply
the update, SGD unless --optimizer names another), and synthetic workers, which exchange like the
program worker but compute nothing (bench/exchange_client.c, which also checks the sums). It
reports:

  goodput    payload bytes per second of all workers, both ways (gradients up, parameters down)
  CPU        seconds per GB of that payload, of all workers and of all servers
  p50, p99   time of one exchange (push all chunks, wait for all new versions) of the slowest worker

The recorded model (--as=deep_mnist_h100) is the deep MNIST CNN with Adam: a step pushes its layers
in the order and with the delays of a worker on an H100 (batch 512, tf32), and the output also has
the time from the step's first push to the version of each layer and all layers before it.

The same run also measures:

  iperf3     iperf3 -l 1M, one stream: bytes received per second; CPU of both sides by iperf3's
             count
  raw        two processes send a message of the model's size (at most 64 MB) back and forth over a
             plain TCP connection (bench/pingpong.c). For models below 64 KB it is also measured
             with each process on its own core ("apart"). Otherwise the kernel tends to put both
             processes on one core, where a round trip wakes no other core; an exchange has more
             threads and must wake other cores

A round runs every contestant once, and every second round has the reverse order. The results are
medians over the rounds. A first run, which does not count, finds the number of steps that last
--seconds. GB are 1e9 bytes. K and M in sizes are 1024 and 1024^2 bytes, but 13.1M is the deep MNIST
CNN's 3,274,634 floats. Models with fewer chunks than servers are omitted.
"""
import argparse
import ctypes
import datetime
import json
import os
import select
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from common import SOURCE, commit, free_ports, machine, write_json

SIZES = {"13.1M": 4 * 3274634}
RECORDED = "deep_mnist_h100"
SMALL = 64 << 10  # below this only the latency matters, not bytes per second
RAW_MOST = 64 << 20
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


class Failure(Exception):
    """A child failed."""


def note(text):
    print("bench: " + text, file=sys.stderr, flush=True)


class Child:
    """One process. Its output is kept, and it is killed at the end in any case."""

    def __init__(self, name, argv):
        self.name, self.argv, self.out = name, argv, b""
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors,
            preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        self.pid = self.process.pid

    def read(self, deadline):
        """Reads from stdout; returns False at its end."""
        stdout = self.process.stdout
        left = deadline - time.monotonic()
        if not select.select([stdout], [], [], max(0, left))[0]:
            raise Failure("%s did not end in time" % self.name)
        data = os.read(stdout.fileno(), 1 << 16)
        self.out += data
        return bool(data)

    def await_text(self, text, seconds):
        deadline = time.monotonic() + seconds
        while text not in self.out:
            if not self.read(deadline):
                raise Failure("%s ended before it printed '%s'" % (self.name, text.decode()))

    def finish(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def report(self):
        """Returns the command, its end and its output."""
        self.errors.seek(0)
        text = (self.out + self.errors.read()).decode(errors="replace").rstrip()
        return "%s (%s; status %s)\n%s\n" % (self.name, shlex.join(self.argv),
                                             self.process.returncode, text[-4000:])

    def close(self):
        self.process.stdout.close()
        self.errors.close()


class Children:
    """The children of one measurement: with Children() as c. A failure has all their output."""

    def __init__(self):
        self.all = []

    def __enter__(self):
        return self

    def start(self, name, argv):
        self.all.append(Child(name, argv))
        return self.all[-1]

    def wait(self, seconds):
        """Waits until all children have exited with 0. The first failure ends the wait."""
        deadline = time.monotonic() + seconds
        waiting = {os.pidfd_open(c.pid): c for c in self.all}
        try:
            while waiting:
                ended = select.select(list(waiting), [], [], max(0, deadline - time.monotonic()))[0]
                if not ended:
                    raise Failure("%s did not end within %d s" %
                                  (", ".join(c.name for c in waiting.values()), seconds))
                for fd in ended:
                    child = waiting.pop(fd)
                    os.close(fd)
                    if child.process.wait() != 0:
                        raise Failure("%s failed with status %d" %
                                      (child.name, child.process.returncode))
                    while child.read(deadline):
                        pass
        finally:
            for fd in waiting:
                os.close(fd)

    def __exit__(self, kind, error, trace):
        for c in self.all:
            c.finish()
        if isinstance(error, Failure):
            error.args = ("%s\n%s" % (error, "\n".join(c.report() for c in self.all)),)
        for c in self.all:
            c.close()


class Shape:
    """A model of n parameters of one size, or the recorded one."""

    def __init__(self, params, param_bytes, name, recorded=False):
        self.params, self.param_bytes, self.name = params, param_bytes, name
        self.bytes = params * param_bytes
        self.flags = ["--as=" + name] if recorded else ["--params=%d" % params,
                                                        "--param_bytes=%d" % param_bytes]

    def chunks(self, chunk_bytes):
        return self.params * -(-self.param_bytes // chunk_bytes)


def parse_bytes(text):
    if text in SIZES:
        return SIZES[text]
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    try:
        n = int(text if factor == 1 else text[:-1]) * factor
    except ValueError:
        n = 0
    if n <= 0 or n % 4:
        raise argparse.ArgumentTypeError("'%s' is no multiple of 4, as in 4, 64K, 1M" % text)
    return n


def parse_sizes(text):
    return [Shape(1, parse_bytes(t), t if t[-1] in "KM" else t + " B") for t in text.split(",")]


def parse_shape(text):
    params, _, size = text.partition("x")
    if not params.isdigit() or int(params) == 0 or not size:
        raise argparse.ArgumentTypeError("'%s' is no shape: as in 1000x1024" % text)
    return Shape(int(params), parse_bytes(size), text)


def parse_counts(text):
    if not all(t.isdigit() and 0 < int(t) <= 64 for t in text.split(",")):
        raise argparse.ArgumentTypeError("'%s' are no numbers from 1 to 64, as in 1,2,4" % text)
    return [int(t) for t in text.split(",")]


def run_exchange(args, shape, workers, servers, steps):
    """Runs one job: servers and workers start, exchange, check, and end."""
    limit = args.limit
    hosts = "--ps_hosts=" + ",".join("127.0.0.1:%d" % p for p in free_ports(servers))
    with Children() as c:
        ps = [c.start("ps:%d" % i, [os.path.join(args.bin, "ps"), hosts, "--task_index=%d" % i,
                                    "--ready_fd=1", *args.ps_flag]) for i in range(servers)]
        for p in ps:
            p.await_text(b"ready", 20)
        clients = []
        for i in range(workers):
            argv = [os.path.join(args.bin, "bench_exchange_client"), hosts, "--task_index=%d" % i,
                    "--workers=%d" % workers, *shape.flags,
                    *(["--optimizer=" + args.optimizer] if args.optimizer != "sgd" else []),
                    "--chunk_bytes=%d" % args.chunk_bytes,
                    "--warmup=%d" % max(3, min(200, steps // 5)), "--steps=%d" % steps,
                    "--limit_s=%d" % limit, *args.client_flag]
            if i == 0:
                argv.append("--cpu_of=" + ",".join(str(p.pid) for p in ps))
            clients.append(c.start("client:%d" % i, argv))
        c.wait(limit)
        results = [json.loads(child.out) for child in clients]
    seconds = 1e-9 * (max(r["end_ns"] for r in results) - min(r["begin_ns"] for r in results))
    gb = 1e-9 * sum(r["steps"] * r["step_bytes"] for r in results)
    layers = {layer["layer"] + "_us": max(r["layers"][i]["p50_us"] for r in results)
              for i, layer in enumerate(results[0].get("layers", []))}
    return {"gb_per_s": gb / seconds, "seconds": seconds, "steps": steps, **layers,
            "client_cpu_s_per_gb": sum(r["cpu_s"] for r in results) / gb,
            "server_cpu_s_per_gb": results[0]["others_cpu_s"] / gb,
            "cpu_s_per_gb": (sum(r["cpu_s"] for r in results) + results[0]["others_cpu_s"]) / gb,
            "p50_us": max(r["p50_us"] for r in results),
            "p99_us": max(r["p99_us"] for r in results)}


def run_iperf3(args):
    port = free_ports(1)[0]
    with Children() as c:
        server = c.start("iperf3 server", ["iperf3", "-s", "-1", "-p", str(port), "-B", "127.0.0.1",
                                           "--forceflush"])
        server.await_text(b"listening", 20)
        client = c.start("iperf3 client", ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-l", "1M",
                                           "-t", "1", "-J"])
        c.wait(30)
        end = json.loads(client.out)["end"]
    received, cpu = end["sum_received"], end["cpu_utilization_percent"]
    gb, seconds = received["bytes"] / 1e9, received["seconds"]
    return {"gb_per_s": gb / seconds,
            "cpu_s_per_gb": (cpu["host_total"] + cpu["remote_total"]) / 100 * seconds / gb}


def run_raw(args, size, *flags):
    with Children() as c:
        child = c.start("ping-pong", [os.path.join(args.bin, "bench_pingpong"), "--bytes=%d" % size,
                                      "--seconds=%g" % min(0.5, args.seconds), *flags])
        c.wait(60)
        return json.loads(child.out)


def calibrate(args, shape, workers, servers):
    """Returns the number of steps that last --seconds."""
    guess = max(8, min(500, int(2e8 / (2 * workers * shape.bytes))))
    measured = run_exchange(args, shape, workers, servers, guess)
    return max(8, min(1000000, int(args.seconds / measured["seconds"] * guess)))


class Contest:
    """The contestants of one model, each of which runs once in a round."""

    def __init__(self, args, shape):
        self.shape, self.runs, self.figures = shape, [], {}
        raw = min(shape.bytes, RAW_MOST)
        self.add("raw", lambda: run_raw(args, raw))
        if shape.bytes < SMALL:
            self.add("apart", lambda: run_raw(args, raw, "--apart"))
        else:
            self.add("iperf3", lambda: run_iperf3(args))
        for servers in args.servers:
            for workers in args.workers:
                if shape.chunks(args.chunk_bytes) >= servers:
                    self.add_exchange(args, workers, servers)

    def add(self, key, run):
        self.runs.append((key, run))
        self.figures[key] = []

    def add_exchange(self, args, workers, servers):
        shape = self.shape
        steps = args.steps or calibrate(args, shape, workers, servers)
        self.add((workers, servers), lambda: run_exchange(args, shape, workers, servers, steps))

    def round(self, label, backwards):
        for key, run in self.runs[::-1 if backwards else 1]:
            f = run()
            self.figures[key].append(f)
            what = key if isinstance(key, str) else "%d worker%s, %d server%s" % (
                key[0], "s" * (key[0] > 1), key[1], "s" * (key[1] > 1))
            note("%s, %-9s %-20s %7.3f GB/s %6.2f s/GB%s" % (
                label, self.shape.name + ",", what, f["gb_per_s"], f["cpu_s_per_gb"],
                "  p50 %.0f us, p99 %.0f us" % (f["p50_us"], f["p99_us"]) if "p50_us" in f else ""))

    def median(self, key, field):
        values = [f[field] for f in self.figures.get(key, []) if field in f]
        return statistics.median(values) if values else None

    def medians(self, key):
        fields = [k for k in self.figures[key][0] if k not in ("bytes", "trips")]
        result = {field: self.median(key, field) for field in fields}
        result["rounds"] = self.figures[key]
        return result

    def exchanges(self):
        return [key for key, _ in self.runs if not isinstance(key, str)]

    def result(self):
        """Returns medians, ratios and each round's figures, for JSON."""
        shape = {"model": self.shape.name, "params": self.shape.params,
                 "param_bytes": self.shape.param_bytes}
        result = {**shape, "exchange": []}
        for name in ("raw", "apart", "iperf3"):
            if name in self.figures:
                result[name] = self.medians(name)
        for key in self.exchanges():
            row = {"workers": key[0], "servers": key[1], **self.medians(key)}
            for base, field in (("iperf3", "gb_per_s"), ("raw", "p50_us"), ("apart", "p50_us")):
                if base in self.figures:
                    row["%s_to_%s" % (field, base)] = row[field] / self.median(base, field)
            result["exchange"].append(row)
        return result


def layers_of(exchange):
    return [k[:-3] for k in exchange if k.endswith("_us") and not k.startswith("p")]


def figures(results):
    """Returns the figures that bench/against compares: [name, unit, value]."""
    found = []
    for r in results:
        for x in r["exchange"]:
            name = "%s, %d worker%s, %d server%s" % (r["model"], x["workers"],
                                                     "s" * (x["workers"] > 1), x["servers"],
                                                     "s" * (x["servers"] > 1))
            if "iperf3" in r:
                found += [[name, "GB/s", x["gb_per_s"]],
                          [name, "of iperf3", x["gb_per_s_to_iperf3"]]]
            if "iperf3" not in r or r["model"] == RECORDED:
                found.append([name, "p50 us", x["p50_us"]])
            found += [[name + ", " + layer, "p50 us", x[layer + "_us"]] for layer in layers_of(x)]
            found.append([name, "CPU s/GB", x["cpu_s_per_gb"]])
    return found


def cell(value, form):
    return form % value if value is not None else "-"


def print_layers(results):
    """Prints the times from a step's first push to the versions of each layer."""
    rows = [(r["model"], x["workers"], x["servers"], layer, x[layer + "_us"],
             [f[layer + "_us"] for f in x["rounds"]])
            for r in results for x in r["exchange"] for layer in layers_of(x)]
    if rows:
        print("\n| model | workers | servers | layer | p50 us to its version | lowest to highest |")
        print("|" + " ---: |" * 6)
    for *row, rounds in rows:
        print("| %s | %d | %d | %s | %.0f | %.0f to %.0f |" % (*row, min(rounds), max(rounds)))


def print_tables(args, results):
    print("\n%s, commit %s; %s, load before the run %.1f" %
          (args.date, args.commit, machine(), args.load))
    print("median of %d round%s of %s; %s; chunks of %d bytes%s\n" % (
        args.rounds, "s" * (args.rounds > 1),
        "%d steps" % args.steps if args.steps else "%g s" % args.seconds, args.optimizer,
        args.chunk_bytes,
        "".join("; " + f for f in args.ps_flag + args.client_flag)))
    print("| model | workers | servers | GB/s | lowest to highest | to iperf3 | CPU s/GB | workers "
          "| servers | p50 us | p99 us | p50 to raw |\n|" + " ---: |" * 12)
    for r in results:
        for x in r["exchange"]:
            rates = [f["gb_per_s"] for f in x["rounds"]]
            form = "%.2f" if rates[0] >= 0.1 else "%.2g"
            print("| %s | %d | %d | %s | %s to %s | %s | %s | %s | %s | %.0f | %.0f | %s |" % (
                r["model"], x["workers"], x["servers"], form % x["gb_per_s"], form % min(rates),
                form % max(rates), cell(x.get("gb_per_s_to_iperf3"), "%.2f"),
                "%.3g" % x["cpu_s_per_gb"], "%.3g" % x["client_cpu_s_per_gb"],
                "%.3g" % x["server_cpu_s_per_gb"], x["p50_us"], x["p99_us"],
                "%.2f" % x["p50_us_to_raw"] +
                (" (apart: %.2f)" % x["p50_us_to_apart"] if "apart" in r else "")))
    print_layers(results)
    print("\n| beside it | GB/s | CPU s/GB | p50 us | p99 us |\n|" + " ---: |" * 5)
    for r in results:
        for name, what in (("iperf3", "iperf3 -l 1M, with"), ("raw", "raw,"),
                           ("apart", "raw, apart,")):
            if name in r:
                print("| %s %s | %.3g | %.3g | %s | %s |" % (
                    what, r["model"], r[name]["gb_per_s"], r[name]["cpu_s_per_gb"],
                    cell(r[name].get("p50_us"), "%.1f"), cell(r[name].get("p99_us"), "%.1f")))


def print_comparisons(results):
    """Compares each shape with the first one."""
    first = results[0]
    rates = {(x["workers"], x["servers"]): x["gb_per_s"] for x in first["exchange"]}
    comparisons = []
    for r in results[1:]:
        for x in r["exchange"]:
            base = rates.get((x["workers"], x["servers"]))
            if base:
                comparisons.append({"model": r["model"], "to": first["model"],
                                    "workers": x["workers"], "servers": x["servers"],
                                    "ratio": x["gb_per_s"] / base})
    for c in comparisons:
        print("\n%(model)s moves at %(ratio).2f times the bytes per second of %(to)s "
              "(workers: %(workers)d, servers: %(servers)d)." % c)
    return comparisons


def parse():
    p = argparse.ArgumentParser(prog="bench/exchange", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sizes", type=parse_sizes, metavar="BYTES,...",
                   help="models of one parameter; default 4,64K,1M,13.1M,64M (none with --shape)")
    p.add_argument("--shape", type=parse_shape, action="append", default=[], metavar="PARAMSxBYTES",
                   help="a model of many parameters of one size, as in 1000x1024; may be repeated, "
                        "then each is compared with the first")
    p.add_argument("--as", dest="recorded", choices=[RECORDED],
                   help="the recorded pushes of a model; then no other model without --sizes")
    p.add_argument("--optimizer", default=None, metavar="NAME",
                   help="of the servers, as worker --optimizer; default sgd, with --as adam")
    p.add_argument("--workers", type=parse_counts, metavar="N,...", help="default 1,2,4")
    p.add_argument("--servers", type=parse_counts, metavar="N,...", help="default 1,2")
    p.add_argument("--rounds", type=int, help="default 5")
    p.add_argument("--seconds", type=float, help="timed in a round, for each; default 1")
    p.add_argument("--steps", type=int, help="timed in a round, instead of --seconds")
    p.add_argument("--quick", action="store_true",
                   help="one round of 0.5 s, sizes 4,1M,13.1M, workers 1,2, servers 1")
    p.add_argument("--chunk_bytes", type=int, default=1 << 20)
    p.add_argument("--ps_flag", action="append", default=[], metavar="FLAG",
                   help="passed on to ps, as in --ps_flag=--inter_op_threads=1; may be repeated")
    p.add_argument("--client_flag", action="append", default=[], metavar="FLAG",
                   help="passed on to bench_exchange_client; may be repeated")
    p.add_argument("--tls", action="store_true",
                   help="all links are TLS 1.3; with --client_flag=--shared_memory=off all bytes "
                        "go through it")
    p.add_argument("--bin", default=os.path.join(SOURCE, "build/bin"),
                   help="folder of the programs, which are then not built")
    p.add_argument("--json", metavar="FILE", help="also write the figures here")
    p.add_argument("--limit", type=int, default=120, help="seconds for one run of one contestant")
    args = p.parse_args()
    quick = args.quick
    if args.recorded:
        args.shape.append(Shape(1, SIZES["13.1M"], args.recorded, recorded=True))
    args.optimizer = args.optimizer or ("adam" if args.recorded else "sgd")
    if args.sizes is None:
        args.sizes = [] if args.shape else parse_sizes(
            "4,1M,13.1M" if quick else "4,64K,1M,13.1M,64M")
    args.workers = args.workers or ([1, 2] if quick else [1, 2, 4])
    args.servers = args.servers or ([1] if quick else [1, 2])
    args.rounds = args.rounds or (1 if quick else 5)
    args.seconds = args.seconds or (0.5 if quick else 1)
    args.date = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    args.commit = commit(SOURCE)
    args.load = os.getloadavg()[0]
    return args


def measure(args):
    contests = []
    for shape in args.sizes + args.shape:
        contests.append(Contest(args, shape))
        note("%s: %s" % (shape.name, "steps chosen" if contests[-1].exchanges()
                         else "fewer chunks than servers, nothing to measure"))
    for i in range(args.rounds):
        for contest in contests[::-1 if i % 2 else 1]:
            contest.round("round %d of %d" % (i + 1, args.rounds), i % 2 == 1)
    return [contest.result() for contest in contests]


def make_certs(args, folder):
    """Makes certificates for the two programs by scripts/make_certs; returns their flags."""
    for words, flags in ((("ps", "ps", "127.0.0.1"), args.ps_flag),
                         (("worker", "worker"), args.client_flag)):
        subprocess.run([os.path.join(SOURCE, "scripts/make_certs"), folder, *words], check=True)
        flags += ["--tls_%s=%s" % (flag, os.path.join(folder, file)) for flag, file in
                  (("cert", words[0] + ".pem"), ("key", words[0] + ".key"), ("ca", "ca.pem"))]


def main():
    args = parse()
    folder = tempfile.TemporaryDirectory(prefix="weir-certs-")
    if args.tls:
        make_certs(args, folder.name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        results = measure(args)
    except Failure as failure:
        sys.exit("bench: %s" % failure)
    except KeyboardInterrupt:
        sys.exit(130)
    print_tables(args, results)
    result = {"date": args.date, "commit": args.commit, "machine": machine(),
              "load_before": args.load, "rounds": args.rounds, "seconds": args.seconds,
              "steps": args.steps, "optimizer": args.optimizer, "chunk_bytes": args.chunk_bytes,
              "ps_flags": args.ps_flag, "client_flags": args.client_flag, "results": results,
              "figures": figures(results)}
    if args.shape and len(results) > 1:
        result["comparisons"] = print_comparisons(results)
    print("\n" + json.dumps(result))
    write_json(result, args.json)


main()
