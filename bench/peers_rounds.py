"""Exchange rounds of large parameters: Weir beside its peers. See bench/peers rounds --help."""
import os
import statistics
import sys

import peers_env
from common import SOURCE, commit, in_turns, machine, write_json
from peers_run import (BIN, FLOWER_LINK, PROGRAMS, Failed, Run, flower_app, flower_home,
                       flower_node, tail, weir_env)
from peers_watch import SERVER, wait_until

import note  # its folder is in sys.path since peers_run
import shapes


class Rounds(Run):
    """A run of exchange rounds."""

    def finish(self):
        """Waits for the notes of all rounds and checks. Returns (time, CPU seconds, bytes) at each
        round of client 0."""
        offset, checked, marks = 0, set(), []

        def look():
            nonlocal offset
            new, offset = note.read(self.notes, offset)
            for n in new:
                if n["kind"] == "round" and n["client"] == 0:
                    marks.append((n["at"], self.watch.seconds(), self.bytes.now()))
                elif n["kind"] == "checked":
                    checked.add(n["client"])
            if len(checked) == self.options["clients"]:
                return "done"
            return self.failure()
        why = wait_until(look, self.args.limit)
        if why != "done":
            raise Failed(why or "no end within %d s: %s" % (
                self.args.limit, tail(self.processes[-1][1])))
        return marks


def start_weir(run):
    run.start("server", [os.path.join(BIN, "ps"), "--ps_hosts=" + run.options["server"]])
    for i in range(run.options["clients"]):
        run.start("client %d" % i, [run.python("weir"), os.path.join(PROGRAMS, "rounds_weir.py"),
                                    str(i)], **weir_env())


def start_gloo(run):
    n = run.options["clients"]
    for i in range(n):
        run.start("client %d" % i, [run.python("torch"), os.path.join(PROGRAMS, "rounds_gloo.py")],
                  RANK=str(i), WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1", MASTER_PORT="29500",
                  GLOO_SOCKET_IFNAME="lo")


def start_flower(run):
    flower_home(run)
    n = run.options["clients"]
    run.start("server", FLOWER_LINK)
    for i in range(n):
        run.start("client %d" % i, flower_node(i, n, SERVER))
    run.start_when_listening(8000, "starter", ["flwr", "run", flower_app(run, "flower_rounds"),
                                               "here"])


def start_nvflare(run):
    run.start("starter", [run.python("nvflare"), os.path.join(PROGRAMS, "rounds_nvflare.py")],
              NVFLARE_POC_WORKSPACE=os.path.join(run.folder, "poc"),
              PATH=os.path.dirname(run.python("nvflare")) + ":" + run.env["PATH"])


def nvflare_role(_root, command):
    """Returns the role of a process of NVFlare, of which each site has several."""
    for i in range(1, 9):
        if "/site-%d" % i in command:
            return "client %d" % (i - 1)
    return "server" if "/server" in command else "starter"


def start_hivemind(run):
    n = run.options["clients"]
    for i in range(n):
        run.start("client %d" % i, [run.python("hivemind"),
                                    os.path.join(PROGRAMS, "rounds_hivemind.py"), str(i)])


ALL = ("ip daddr 127.0.0.0/8", "ip saddr 127.0.0.0/8")
# kind: (name in tables, environments, function that starts it, role_of, counted, own options)
KINDS = {
    "weir": ("Weir, shared memory", ("weir",), start_weir, None, None, {"shared_memory": "auto"}),
    "weir-tcp": ("Weir, TCP", ("weir",), start_weir, None, None, {"shared_memory": "off"}),
    "flower": ("Flower", ("flower",), start_flower, None, None, {}),
    "nvflare": ("NVFlare", ("torch", "nvflare"), start_nvflare, nvflare_role,
                ("tcp dport 8002", "tcp sport 8002"), {}),
    "hivemind": ("hivemind", ("torch", "hivemind"), start_hivemind, None, ALL, {}),
    "gloo": ("gloo all-reduce", ("torch",), start_gloo, None, ALL, {}),
}
NO_SERVER = ("hivemind", "gloo")


def figures(marks, peaks, n_clients):
    """Returns the figures of a run. marks: (time, CPU seconds, (bytes to, bytes from)) at the start
    of each round and at the end; the first round is not measured, because it includes set-up."""
    marks = marks[1:]
    n = len(marks) - 1
    seconds = [b[0] - a[0] for a, b in zip(marks, marks[1:])]
    found = {"seconds": statistics.median(seconds), "cpu": (marks[-1][1] - marks[0][1]) / n,
             **dict(zip(("server_peak", "client_peak", "server_rss", "client_rss"), peaks))}
    if marks[0][2] is not None:
        up, down = (b - a for a, b in zip(marks[0][2], marks[-1][2]))
        found["up"], found["down"] = up / n / n_clients, down / n / n_clients
    return found


def round_of(args, kind, dtype, clients):
    """Returns the figures of one run. Raises Failed."""
    _, environments, start, role_of, counted, more = KINDS[kind]
    for peer in environments:
        why = peers_env.reason(args.cache, peer)
        if why:
            raise Failed(why)
    options = {"clients": clients, "dtype": dtype, "rounds": args.rounds, "size": args.size,
               "server": SERVER + ":2222", **more}
    run = Rounds(args, options, role_of, counted)
    try:
        start(run)
        return figures(run.finish(), run.watch.peaks(), clients)
    finally:
        run.close()


def table(results, size):
    """Returns the lines of the table. results: {(dtype, clients, kind): [figures] or a reason}."""
    lines = ["| format | clients | system | s a round | lowest to highest | MB/s up | "
             "MB up, down a round | CPU s a round | server MB (RSS) | client MB (RSS) |",
             "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for (dtype, clients, kind), found in results.items():
        name = KINDS[kind][0] + (" (fp16)" if kind == "flower" and dtype == "bf16" else "")
        head = "| %s | %d | %s | " % (dtype, clients, name)
        if isinstance(found, str):
            lines.append(head + "did not run: %s | | | | | | |" % found.replace("|", "/"))
            continue
        m = {key: statistics.median(f[key] for f in found) for key in found[0]}
        times = [f["seconds"] for f in found]
        model = shapes.count(size) * (2 if dtype == "bf16" else 4) / 1e6
        both = "%.0f, %.0f" % (m["up"] / 1e6, m["down"] / 1e6) if "up" in m else "not counted"
        server, client = ("%.0f (%.0f)" % (m[role + "_peak"] / 1e6, m[role + "_rss"] / 1e6)
                          for role in ("server", "client"))
        lines.append(head + "%.2f | %.2f to %.2f | %.0f | %s | %.1f | %s | %s |" % (
            m["seconds"], min(times), max(times), model / m["seconds"], both, m["cpu"],
            "" if kind in NO_SERVER else server, client))
    return lines


def ratios(results):
    """Returns lines with the seconds of each peer divided by Weir's of the same turn."""
    lines = []
    for (dtype, clients, kind), found in results.items():
        ours = results.get((dtype, clients, "weir"))
        if kind.startswith("weir") or isinstance(found, str) or not isinstance(ours, list):
            continue
        each = [b["seconds"] / a["seconds"] for a, b in zip(ours, found)]
        lines.append("%s, %d clients: %s needs %.1f times Weir's time (%.1f to %.1f)" % (
            dtype, clients, KINDS[kind][0], statistics.median(each), min(each), max(each)))
    return lines


def measure(args):
    kinds = args.kinds.split(",")
    if not set(kinds) <= set(KINDS):
        sys.exit("bench: --kinds is a list of %s" % ", ".join(KINDS))
    results = {}
    for dtype in args.dtypes.split(","):
        for clients in map(int, args.clients.split(",")):
            for kind in kinds:
                results[dtype, clients, kind] = ("one client has no peer" if clients == 1 and
                                                 kind in NO_SERVER else [])
            for i, kind in in_turns(args.turns, kinds):
                at = (dtype, clients, kind)
                if isinstance(results[at], str):
                    continue
                try:
                    results[at].append(round_of(args, kind, dtype, clients))
                    what = "%.2f s a round" % results[at][-1]["seconds"]
                except Failed as why:
                    results[at] = what = str(why)
                print("%s, %d clients, turn %d: %s: %s" % (dtype, clients, i + 1, kind, what),
                      file=sys.stderr, flush=True)
    print("\n%s; Weir %s; GPT-2 of %.1f million parameters (%s); %d rounds a run, the first is "
          "not measured; median of %d turns; load at the end %.1f\n" % (
              machine(), commit(SOURCE), shapes.count(args.size) / 1e6, args.size, args.rounds,
              args.turns, os.getloadavg()[0]))
    print("\n".join([*table(results, args.size), "", *ratios(results)]))
    write_json({"machine": machine(), "options": vars(args),
                "results": [[*at, found] for at, found in results.items()]}, args.json)
