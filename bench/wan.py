"""Training across the lines between regions, on one machine (tests/wan): network namespaces, lines
with delay, loss and a rate that a process plays, ESP by strongSwan if asked for. One row for each
way to train:

  lan        all workers in the region of the server: what the others are measured by
  sync       workers in all regions, in turns; each exchanges every step with the one server
  local      likewise, every --local_steps steps (worker --local_steps); --rounds times
  local_int4 the same, in int4 both ways
  regions    each region has a server of its own, and exchanges with a parent group's every
             --local_steps steps, in int4, --overlap steps ahead (docs/regions.md)

and for each row

  images/s      of all workers
  step          seconds, of one batch of every worker
  compute       its utilisation: the step of lan divided by this one
  foreseen      the same by the line's figures: H t / (H t + rtt + bytes / rate each way), where t
                is the step of lan, H the steps between two exchanges, and bytes those of all
                workers of a region, which share their line; less what overlaps with computing
  to, from      MB that the kernel counted on the lines of region 0, where the server is, IP's
                headers and the first values included: to it (gradients), from it (parameters); in
                all, and for each step
  lost, late    packets that were lost or found a queue full; how much later than it should a packet
                arrived, mean and most, which says whether the machine kept up with its lines

Workers have one thread each. On a machine with fewer cores than workers they take turns, in every
row alike, so that a row's own share of waiting looks smaller than on machines of their own.
"""
import argparse
import json
import os
import re
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "tests/wan"))
from common import machine  # noqa: E402
import wan  # noqa: E402
import harness  # noqa: E402

PORT = 2221
CONGESTION = "net/ipv4/tcp_congestion_control"
UNITS = {"kbit": 1e-3, "mbit": 1, "gbit": 1e3}
# --modes: where the workers are, and what each way to train has for flags. New ones go here.
MODES = {"lan": {"regions": 1, "flags": []},
         "sync": {"regions": None, "flags": []},
         "local": {"regions": None, "flags": [], "local": True},
         "local_int4": {"regions": None, "flags": ["--wire_dtype=int4"], "local": True},
         "regions": {"regions": None, "flags": ["--parent_wire_dtype=int4"], "local": True,
                     "groups": True}}
INT4 = 132 / 256  # bytes of a value on the wire; else 4
BYTES = {"--wire_dtype=int4": INT4, "--parent_wire_dtype=int4": INT4}
HEAD = ("mode", "steps", "images/s", "step s", "compute", "foreseen", "MB to", "MB from", "to/step",
        "from/step", "lost", "late us")


def note(text):
    print("bench: " + text, file=sys.stderr, flush=True)


def rate(text):
    """Mbit/s of "100mbit"; 0: no limit."""
    m = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)|0", text)
    if not m:
        raise argparse.ArgumentTypeError("%r: wanted as 100mbit, 1gbit, 500kbit, 0" % text)
    return float(m.group(1)) * UNITS[m.group(2)] if m.group(1) else 0


class Job:
    """One server in region 0, and workers; or one for each region besides. To its end."""

    def __init__(self, o, net, n_regions, steps, flags, folder, groups=()):
        """groups: nothing, or what each region's own server has for flags."""
        self.o, self.net, self.folder = o, net, folder
        self.processes, self.n_regions = [], n_regions
        ps_host = "%s:%d" % (net.address(0), PORT)
        # Of region 0: host 0 has the server; of each region, worker i its own host.
        places = [(i % n_regions, i // n_regions) for i in range(o.workers)]
        places = [(r, k + 1 if r == 0 else k) for r, k in places]
        hosts = ["--ps_hosts=" + ps_host, "--worker_hosts=" +
                 ",".join("%s:%d" % (net.address(*place), PORT) for place in places)]
        # One machine plays them all: without this, payloads would go by its memory.
        hosts.append("--shared_memory=off")
        try:
            if groups:
                self.start_groups(ps_host, places, groups, steps, flags)
            else:
                self.start_ps("ps:0", (0, 0), hosts)
                for i, place in enumerate(places):
                    self.start_worker(i, place, hosts, i, steps, flags)
            for p in sorted(self.processes, key=lambda p: p.name.startswith("ps")):
                p.wait(o.seconds / harness.PATIENCE)
        except harness.Failure as e:
            for p in self.processes:
                note("----- %s\n%s" % (p.name, p.output()))
            sys.exit("bench: %s" % e)
        finally:
            for p in self.processes:
                p._end()

    def start_ps(self, name, place, hosts, *flags):
        self.start(name, place, ["ps", *hosts, "--job_name=ps", "--task_index=0", *flags],
                   True).wait_ready()

    def start_worker(self, i, place, hosts, index, steps, flags):
        o = self.o
        self.start("worker:%d" % i, place, [
            "worker", *hosts, "--job_name=worker", "--task_index=%d" % index,
            "--summary_json=" + self.summary_path(i), "--progress=lines",
            "--model=" + o.model, "--models_dir=" + harness.MODELS,
            "--data_dir=" + self.folder, "--train_steps=%d" % steps,
            "--batch_size=%d" % o.batch_size, "--intra_op_threads=1",
            "--optimizer=" + o.optimizer, "--seed=%d" % o.seed, *flags, *o.flag])

    def start_groups(self, parent, places, groups, steps, flags):
        """The parent's server beside region 0's, on host 0 of that region."""
        regions = ["%s:%d" % (self.net.address(r), PORT + 1) for r in range(self.n_regions)]
        self.start_ps("ps:parent", (0, 0), ["--ps_hosts=" + parent,
                                            "--worker_hosts=" + ",".join(regions)])
        for r, own in enumerate(regions):
            mine = [(i, p) for i, p in enumerate(places) if p[0] == r]
            hosts = ["--ps_hosts=" + own, "--shared_memory=off", "--worker_hosts=" +
                     ",".join("%s:%d" % (self.net.address(*p), PORT + 2) for _, p in mine)]
            self.start_ps("ps:%d" % r, (r, 0), hosts, "--parent_hosts=" + parent,
                          "--regions=%d" % self.n_regions, "--region_index=%d" % r, *groups)
            for index, (i, place) in enumerate(mine):
                self.start_worker(i, place, hosts, index, steps, flags)

    def start(self, name, place, argv, ready=False):
        space = self.net.regions[place[0]].hosts[place[1]]
        argv = [*space.enter, os.path.join(self.o.bin, argv[0]), *argv[1:]]
        self.processes.append(harness.Process(name, argv, ready=ready))
        return self.processes[-1]

    def summary_path(self, i):
        return os.path.join(self.folder, "summary-%d.json" % i)

    def summaries(self):
        for i in range(self.o.workers):
            with open(self.summary_path(i), encoding="utf-8") as f:
                yield json.load(f)


def network(o):
    line = {"rtt_ms": o.rtt, "jitter_ms": o.jitter, "loss_percent": o.loss, "rate_mbit": o.rate,
            "mtu": o.mtu, "seed": o.seed}
    if o.queue:
        line["queue_kb"] = o.queue
    n_hosts = [o.workers + 1] + [-(-o.workers // o.regions)] * (o.regions - 1)
    nat = range(1, o.regions) if o.nat else ()
    net = wan.Wan(o.regions, n_hosts, nat, {} if o.esp else None, **line)
    try:
        for host in (h for r in net.regions for h in r.hosts):
            if o.congestion:
                host.sysctl(CONGESTION, o.congestion)
            o.congestion = host.read("/proc/sys/" + CONGESTION).strip()
    except harness.Failure as e:
        net.close()
        sys.exit("bench: %s\nbench: is %s among net.ipv4.tcp_allowed_congestion_control of this "
                 "machine? Namespaces may choose of those alone" % (e, o.congestion))
    return net


def line_figures(stats):
    """Of all lines, both ways: packets lost; how late, mean and most, in microseconds."""
    ways = [s[way] for s in stats for way in ("a_to_b", "b_to_a")]
    out = sum(w["out"] for w in ways)
    late = sum(w["late_us"] * w["out"] for w in ways) / out if out else 0
    return sum(w["lost"] + w["full"] for w in ways), late, max(w["late_us_most"] for w in ways)


def measure(o, mode, folder):
    """One row, on lines of its own."""
    with network(o) as net:
        before = net.counters(0)
        m = MODES[mode]
        between = o.local_steps if m.get("local") else 1
        steps = o.rounds * between if between > 1 else o.steps
        flags, groups = [*m["flags"]], []
        if m.get("groups"):
            groups = [*flags, "--region_steps=%d" % between, "--overlap_steps=%d" % o.overlap]
        elif between > 1:
            flags += ["--local_steps=%d" % between]
        note("%s: %d steps" % (mode, steps))
        job = Job(o, net, m["regions"] or o.regions, steps, [] if groups else flags, folder, groups)
        after = net.counters(0)
        lost, late, late_most = line_figures([link.stats() for link in net.links.values()])
        # What waits for a connection, at a busy end of the job, is in neither.
        per_second = sum(s["images_per_second"] for s in job.summaries())
        n_params = next(job.summaries())["parameters"]
    to, away = (1e-6 * (after[k] - before[k]) for k in ("rx_bytes", "tx_bytes"))
    return {"images/s": per_second, "step": o.workers * o.batch_size / per_second,
            "steps": steps, "between": between, "crosses": 0 if m["regions"] == 1 else n_params *
            BYTES.get("".join(flags[:1]), 4) * (1 if groups else -(-o.workers // o.regions)),
            "overlap": o.overlap if groups else 0,
            "to": to, "from": away, "lost": lost, "late": late, "late_most": late_most}


def foreseen(o, lan, r):
    work = r["between"] * lan["step"]
    line = 1e-3 * o.rtt + 2 * r["crosses"] * 8e-6 / o.rate if o.rate else 1e-3 * o.rtt
    line = max(0, line - r["overlap"] * lan["step"])
    return work / (work + line) if r["crosses"] else 1


def table(o, rows):
    def cells(mode, r):
        lan = rows.get("lan")
        return (mode, "%d" % r["steps"], "%.1f" % r["images/s"], "%.3f" % r["step"],
                "%.3f" % (lan["step"] / r["step"]) if lan else "-",
                "%.3f" % foreseen(o, lan, r) if lan else "-", "%.2f" % r["to"], "%.2f" % r["from"],
                "%.2f" % (r["to"] / r["steps"]), "%.2f" % (r["from"] / r["steps"]),
                "%d" % r["lost"], "%.0f, %.0f" % (r["late"], r["late_most"]))
    lines = [HEAD, *(cells(mode, r) for mode, r in rows.items())]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    for line in lines:
        print("  ".join(cell.rjust(w) if i else cell.ljust(w)
                        for i, (cell, w) in enumerate(zip(line, widths))))


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rtt", type=float, default=80, metavar="MS", help="(%(default)s)")
    p.add_argument("--jitter", type=float, default=0, metavar="MS", help="each way (%(default)s)")
    p.add_argument("--rate", type=rate, default="100mbit", metavar="R",
                   help="each way: 500kbit, 100mbit, 1gbit; 0: no limit (%(default)s)")
    p.add_argument("--loss", type=float, default=0, metavar="PERCENT", help="(%(default)s)")
    p.add_argument("--mtu", type=int, default=1500, help="of the lines (%(default)s)")
    p.add_argument("--queue", type=int, default=0, metavar="KB",
                   help="before a line's rate (0: what one rtt carries, 256 at least)")
    p.add_argument("--esp", action="store_true",
                   help="gateways join the regions by IKEv2 and ESP (strongSwan, in user space)")
    p.add_argument("--nat", action="store_true", help="all regions but the server's are behind NAT")
    p.add_argument("--congestion", metavar="NAME",
                   help="TCP's, on all hosts: cubic, bbr, reno (this machine's)")
    p.add_argument("--regions", type=int, default=2, metavar="N", help="(%(default)s)")
    p.add_argument("--workers", type=int, default=2, metavar="N", help="in all (%(default)s)")
    p.add_argument("--modes", default=",".join(MODES), metavar="MODE,...", help="(%(default)s)")
    p.add_argument("--steps", type=int, default=10, metavar="N", help="(%(default)s)")
    p.add_argument("--local_steps", type=int, default=50, metavar="N", help="(%(default)s)")
    p.add_argument("--overlap", type=int, default=0, metavar="N",
                   help="steps of regions while an exchange is under way (%(default)s)")
    p.add_argument("--rounds", type=int, default=4, metavar="N", help="(%(default)s)")
    p.add_argument("--model", default="deep_mnist", help="(%(default)s)")
    p.add_argument("--optimizer", default="adam", help="(%(default)s)")
    p.add_argument("--batch_size", type=int, default=64, metavar="N", help="(%(default)s)")
    p.add_argument("--flag", action="append", default=[], metavar="FLAG", help="for the workers")
    p.add_argument("--seconds", type=float, default=900, help="most for a row (%(default)s)")
    p.add_argument("--seed", type=int, default=1, metavar="N", help="(%(default)s)")
    p.add_argument("--json", metavar="FILE", help="the table's figures")
    p.add_argument("--bin", default=harness.BIN, metavar="FOLDER", help="(%(default)s)")
    o = p.parse_args()
    o.modes = o.modes.split(",")
    for mode in o.modes:
        if mode not in MODES:
            p.error("--modes: %r is none of %s" % (mode, ", ".join(MODES)))
    if o.regions < 2 or o.workers < o.regions:
        p.error("two regions or more, and a worker for each")
    return o


def main():
    o = parse()
    why = wan.why_not(ipsec=o.esp, nat=o.nat)
    if why:
        sys.exit("bench: " + why)
    print(machine())
    rows = {}
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        harness.make_data(folder)
        for mode in o.modes:
            rows[mode] = measure(o, mode, folder)
    print("%d regions, %d workers, %s, batch %d; lines: rtt %g ms, %s, loss %g %%, MTU %d%s%s" % (
        o.regions, o.workers, o.model, o.batch_size, o.rtt,
        "%g Mbit/s" % o.rate if o.rate else "no limit", o.loss, o.mtu, ", ESP" if o.esp else "",
        ", NAT" if o.nat else ""))
    print(" ".join(["TCP:", o.congestion, *o.flag]))
    table(o, rows)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump({"options": vars(o), "rows": rows}, f, indent=1)


main()
