"""Measures training across the links between regions, on one machine (tests/wan). The regions are
network namespaces. A process imitates the delay, loss and rate of the links, and strongSwan
encrypts them by ESP on request. The table has one row for each way to train:

  lan        all workers in the region of the server: the reference of all other rows
  sync       workers in all regions; each exchanges every step with the one server
  local      as sync, but every --local_steps steps (worker --local_steps); --rounds times
  local_int4 as local, in int4 both ways
  near       as regions, but over links without delay or limit: shows how much the programs of all
             regions slow each other down on this one machine
  regions    each region has its own server, which exchanges with a parent group every
             --local_steps steps, in --wire, --overlap steps ahead (docs/guide/regions.md)

Each row has these columns:

  images/s      of all workers
  step          seconds of one batch of every worker
  compute       utilisation: the step of lan divided by the step of this row
  of near       the step of near divided by the step of this row: the cost of the link
  predicted     compute as predicted from the link: H t / (H t + rtt + bytes / rate each way). t is
                the step of lan, H the number of steps between two exchanges, and bytes are those of
                all workers of a region, which share their link. The prediction ignores that part of
                an exchange overlaps computing
  to, from      MB to the server's region 0 (gradients) and from it (parameters), in all and for
                each step. The kernel counts them on the links of region 0, including IP's headers
                and the first values
  waited        share of the time in which the regions' workers waited for the parent's answer: the
                mean over the regions, from the log lines of their servers
  left out      rounds of the parent that continued without a region (--cut, --kill)
  accuracy      on the test set (--data_dir)
  lost, late    packets that were lost or that a full queue dropped; mean and largest delay of a
                packet beyond the link's own, which shows whether the machine is fast enough

Workers have one thread each. If the machine has fewer cores than workers, the workers share cores
in every row, so that a row's share of waiting looks smaller than with a machine for each worker.

Faults apply to all rows except near, if the row has workers in more than one region. Times of
faults are seconds since worker 0 was ready. --cut AFTER:SECONDS, which may be repeated, cuts the
link between regions 0 and 1. --kill AFTER, in the row regions, kills the server of region 1 (-9)
and starts it again; `waited` then excludes waits before the kill.
"""
import argparse
import os
import re
import sys
import tempfile

from common import SOURCE, machine, write_json

sys.path.insert(0, os.path.join(SOURCE, "tests/wan"))
import wan  # noqa: E402
import harness  # noqa: E402
from wan_job import Job, note  # noqa: E402

CONGESTION = "net/ipv4/tcp_congestion_control"
UNITS = {"kbit": 1e-3, "mbit": 1, "gbit": 1e3}
# The rows (--modes): regions of the workers, and flags of each way to train.
MODES = {"lan": {"regions": 1, "flags": []},
         "sync": {"regions": None, "flags": []},
         "local": {"regions": None, "flags": [], "local": True},
         "local_int4": {"regions": None, "flags": ["--wire_dtype=int4"], "local": True,
                        "wire": "int4"},
         "near": {"regions": None, "flags": [], "local": True, "groups": True, "near": True},
         "regions": {"regions": None, "flags": [], "local": True, "groups": True}}
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 260 / 256, "int4": 132 / 256, "topk": 24 / 256}
HEAD = ("mode", "steps", "images/s", "step s", "compute", "of near", "predicted", "MB to",
        "MB from", "to/step",
        "from/step", "waited", "left out", "accuracy", "lost", "late us")


def rate(text):
    """Returns the Mbit/s of a text like "100mbit"; 0: no limit."""
    m = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)|0", text)
    if not m:
        raise argparse.ArgumentTypeError("%r: write it as 100mbit, 1gbit, 500kbit, 0" % text)
    return float(m.group(1)) * UNITS[m.group(2)] if m.group(1) else 0


def network(o, near):
    line = {"rtt_ms": o.rtt, "jitter_ms": o.jitter, "loss_percent": o.loss, "rate_mbit": o.rate,
            "mtu": o.mtu, "seed": o.seed}
    if near:
        line = {"mtu": o.mtu}
    if o.queue and not near:
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
    """Returns figures over both ways of all links: lost packets, and how late packets arrived, in
    us (mean and most)."""
    ways = [s[way] for s in stats for way in ("a_to_b", "b_to_a")]
    out = sum(w["out"] for w in ways)
    late = sum(w["late_us"] * w["out"] for w in ways) / out if out else 0
    return sum(w["lost"] + w["full"] for w in ways), late, max(w["late_us_most"] for w in ways)


def measure(o, mode, folder):
    """Measures one row, on its own links."""
    m = MODES[mode]
    with network(o, m.get("near")) as net:
        before = net.counters(0)
        between = o.local_steps if m.get("local") else 1
        steps = o.rounds * between if between > 1 else o.steps
        flags, groups = [*m["flags"]], []
        if m.get("groups"):
            groups = ["--parent_wire_dtype=" + o.wire, "--region_steps=%d" % between,
                      "--overlap_steps=%d" % o.overlap]
        elif between > 1:
            flags += ["--local_steps=%d" % between]
        note("%s: %d steps" % (mode, steps))
        job = Job(o, net, m["regions"] or o.regions, steps, flags,
                  tempfile.mkdtemp(dir=folder), groups, not m.get("near"))
        after = net.counters(0)
        lost, late, late_most = line_figures([link.stats() for link in net.links.values()])
        # No figure includes waits for connections at the end of the job.
        per_second = sum(s["images_per_second"] for s in job.summaries())
        n_params = next(job.summaries())["parameters"]
    to, away = (1e-6 * (after[k] - before[k]) for k in ("rx_bytes", "tx_bytes"))
    each = BYTES[o.wire if groups else m.get("wire", "fp32")]
    accuracy = next(job.summaries())["test_accuracy"] if o.data_dir else None
    return {"images/s": per_second, "step": o.workers * o.batch_size / per_second,
            "steps": steps, "between": between, "crosses": 0 if m["regions"] == 1 else n_params *
            each * (1 if groups else -(-o.workers // o.regions)),
            "overlap": o.overlap if groups else 0, "near": bool(m.get("near")),
            "to": to, "from": away, "waited": job.waited(), "left_out": job.left_out(),
            "accuracy": accuracy, "lost": lost, "late": late, "late_most": late_most}


def seconds_pair(text):
    m = re.fullmatch(r"(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)", text)
    if not m:
        raise argparse.ArgumentTypeError("%r: write it as AFTER:SECONDS" % text)
    return float(m.group(1)), float(m.group(2))


def predicted(o, lan, r):
    if r["near"]:
        return 1
    work = r["between"] * lan["step"]
    line = 1e-3 * o.rtt + 2 * r["crosses"] * 8e-6 / o.rate if o.rate else 1e-3 * o.rtt
    line = max(0, line - r["overlap"] * lan["step"])
    return work / (work + line) if r["crosses"] else 1


def part(value, form):
    return "-" if value is None else form % value


def table(o, rows):
    def cells(mode, r):
        lan, near = rows.get("lan"), rows.get("near")
        return (mode, "%d" % r["steps"], "%.1f" % r["images/s"], "%.3f" % r["step"],
                "%.3f" % (lan["step"] / r["step"]) if lan else "-",
                "%.3f" % (near["step"] / r["step"]) if near else "-",
                "%.3f" % predicted(o, lan, r) if lan else "-", "%.2f" % r["to"], "%.2f" % r["from"],
                "%.2f" % (r["to"] / r["steps"]), "%.2f" % (r["from"] / r["steps"]),
                part(r["waited"], "%.3f"), part(r["left_out"], "%d"), part(r["accuracy"], "%.4f"),
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
    p.add_argument("--mtu", type=int, default=1500, help="MTU of the links (%(default)s)")
    p.add_argument("--queue", type=int, default=0, metavar="KB",
                   help="queue before a link (0: the bytes of one rtt, at least 256 KB)")
    p.add_argument("--esp", action="store_true",
                   help="gateways join the regions by IKEv2 and ESP (strongSwan, in user space)")
    p.add_argument("--nat", action="store_true",
                   help="regions other than the server's are behind NAT")
    p.add_argument("--congestion", metavar="NAME",
                   help="congestion control of TCP on all hosts: cubic, bbr, reno (this machine's)")
    p.add_argument("--regions", type=int, default=2, metavar="N", help="(%(default)s)")
    p.add_argument("--workers", type=int, default=2, metavar="N", help="in all (%(default)s)")
    p.add_argument("--modes", default=",".join(MODES), metavar="MODE,...", help="(%(default)s)")
    p.add_argument("--steps", type=int, default=10, metavar="N", help="(%(default)s)")
    p.add_argument("--local_steps", type=int, default=50, metavar="N", help="(%(default)s)")
    p.add_argument("--overlap", type=int, default=0, metavar="N",
                   help="steps of regions while an exchange is under way (%(default)s)")
    p.add_argument("--wire", default="int4", choices=BYTES, help="of regions (%(default)s)")
    p.add_argument("--rounds", type=int, default=4, metavar="N", help="(%(default)s)")
    p.add_argument("--model", default="deep_mnist", help="(%(default)s)")
    p.add_argument("--optimizer", default="adam", help="(%(default)s)")
    p.add_argument("--batch_size", type=int, default=64, metavar="N", help="(%(default)s)")
    p.add_argument("--flag", action="append", default=[], metavar="FLAG", help="for the workers")
    p.add_argument("--parent_flag", action="append", default=[], metavar="FLAG",
                   help="for the server of the parent group, in the mode regions")
    p.add_argument("--region_flag", action="append", default=[], metavar="FLAG",
                   help="for the regions' servers")
    p.add_argument("--data_dir", metavar="DIR",
                   help="train on these data, and print the accuracy (made-up data, no accuracy)")
    p.add_argument("--cut", action="append", default=[], type=seconds_pair, metavar="AFTER:SECONDS",
                   help="cut the link")
    p.add_argument("--kill", action="append", default=[], type=float, metavar="AFTER",
                   help="kill the server of region 1, and start it again")
    p.add_argument("--seconds", type=float, default=900, help="longest time of a row (%(default)s)")
    p.add_argument("--seed", type=int, default=1, metavar="N", help="(%(default)s)")
    p.add_argument("--logs", metavar="DIR", help="folder for the output of the last row's programs")
    p.add_argument("--json", metavar="FILE", help="the table's figures")
    p.add_argument("--bin", default=harness.BIN, metavar="FOLDER", help="(%(default)s)")
    o = p.parse_args()
    o.modes = o.modes.split(",")
    for mode in o.modes:
        if mode not in MODES:
            p.error("--modes: %r is none of %s" % (mode, ", ".join(MODES)))
    if o.regions < 2 or o.workers < o.regions:
        p.error("needs two regions or more, and a worker for each")
    return o


def main():
    o = parse()
    why = wan.why_not(ipsec=o.esp, nat=o.nat)
    if why:
        sys.exit("bench: " + why)
    print(machine())
    rows = {}
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        if not o.data_dir:
            harness.make_data(folder)
        for mode in o.modes:
            rows[mode] = measure(o, mode, folder)
    print("%d regions, %d workers, %s, batch %d; links: rtt %g ms, %s, loss %g %%, MTU %d%s%s" % (
        o.regions, o.workers, o.model, o.batch_size, o.rtt,
        "%g Mbit/s" % o.rate if o.rate else "no limit", o.loss, o.mtu, ", ESP" if o.esp else "",
        ", NAT" if o.nat else ""))
    print(" ".join(["TCP:", o.congestion, "wire:", o.wire, "overlap:", str(o.overlap), *o.flag,
                    *o.region_flag, *o.parent_flag]))
    table(o, rows)
    write_json({"options": vars(o), "rows": rows}, o.json, 1)


main()
