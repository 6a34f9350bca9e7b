"""A job of bench/wan: its programs on the hosts of a network (tests/wan), and their faults."""
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

import harness

PORT = 2221


def note(text):
    print("bench: " + text, file=sys.stderr, flush=True)


class Job:
    """Runs a job to its end. It has one server in region 0, in the row regions also one server for
    each region, and workers."""

    def __init__(self, o, net, n_regions, steps, flags, folder, groups=(), faults=True):
        """groups: flags of each region's own server, if regions have servers. folder: for the files
        of this job only."""
        self.o, self.net, self.folder = o, net, folder
        self.processes, self.killed = [], []
        self.n_regions, self.groups, self.steps = n_regions, groups, steps
        ps_host = "%s:%d" % (net.address(0), PORT)
        # Host 0 of region 0 has the server; worker i of each region has its own host.
        places = [(i % n_regions, i // n_regions) for i in range(o.workers)]
        places = [(r, k + 1 if r == 0 else k) for r, k in places]
        hosts = ["--ps_hosts=" + ps_host, "--worker_hosts=" +
                 ",".join("%s:%d" % (net.address(*place), PORT) for place in places)]
        # All hosts are this machine, so payloads would otherwise use its shared memory.
        hosts.append("--shared_memory=off")
        try:
            if groups:
                self.start_groups(ps_host, places, groups, steps, flags)
            else:
                self.start_ps("ps:0", (0, 0), hosts)
                for i, place in enumerate(places):
                    self.start_worker(i, place, hosts, i, steps, flags)
            if faults and n_regions > 1:
                self.play_faults()
            for p in sorted(self.processes, key=lambda p: p.name.startswith("ps")):
                p.wait(o.seconds / harness.PATIENCE)
        except harness.Failure as e:
            for p in (*self.killed, *self.processes):
                note("----- %s\n%s" % (p.name, p.output()))
            sys.exit("bench: %s" % e)
        finally:
            for p in self.processes:
                p._end()
            if o.logs:
                self.write_logs()

    def write_logs(self):
        os.makedirs(self.o.logs, exist_ok=True)
        names = [(p, "killed-%d-%s" % (i, p.name)) for i, p in enumerate(self.killed)]
        for p, name in (*names, *((p, p.name) for p in self.processes)):
            path = os.path.join(self.o.logs, name.replace(":", "-") + ".log")
            with open(path, "w", encoding="utf-8") as f:
                f.write(p.output() + "\n")

    def start_ps(self, name, place, hosts, *flags):
        self.start(name, place, ["ps", *hosts, "--job_name=ps", "--task_index=0", *flags],
                   True).wait_ready()

    def start_worker(self, i, place, hosts, index, steps, flags):
        o = self.o
        self.start("worker:%d" % i, place, [
            "worker", *hosts, "--job_name=worker", "--task_index=%d" % index,
            "--summary_json=" + self.summary_path(i), "--progress=lines",
            "--model=" + o.model, "--models_dir=" + harness.MODELS,
            "--data_dir=" + (o.data_dir or os.path.dirname(self.folder)),
            "--train_steps=%d" % steps, "--batch_size=%d" % o.batch_size, "--intra_op_threads=1",
            "--optimizer=" + o.optimizer, "--seed=%d" % o.seed, *flags, *o.flag])

    def start_groups(self, parent, places, groups, steps, flags):
        """Starts the servers and the workers of the regions. The parent's server runs on host 0 of
        region 0, like the server of that region."""
        regions = ["%s:%d" % (self.net.address(r), PORT + 1) for r in range(self.n_regions)]
        self.start_ps("ps:parent", (0, 0), ["--ps_hosts=" + parent, "--worker_hosts=" +
                                            ",".join(regions)], *self.o.parent_flag)
        for r, own in enumerate(regions):
            mine = [(i, p) for i, p in enumerate(places) if p[0] == r]
            hosts = ["--ps_hosts=" + own, "--shared_memory=off", "--worker_hosts=" +
                     ",".join("%s:%d" % (self.net.address(*p), PORT + 2) for _, p in mine)]
            self.start_ps("ps:%d" % r, (r, 0), hosts, "--parent_hosts=" + parent,
                          "--regions=%d" % self.n_regions, "--region_index=%d" % r, *groups,
                          *self.o.region_flag, *self.keeps(r))
            for index, (i, place) in enumerate(mine):
                self.start_worker(i, place, hosts, index, steps, flags)

    def start(self, name, place, argv, ready=False):
        space = self.net.regions[place[0]].hosts[place[1]]
        argv = [*space.enter, os.path.join(self.o.bin, argv[0]), *argv[1:]]
        self.processes.append(harness.Process(name, argv, ready=ready))
        return self.processes[-1]

    def keeps(self, region):
        """Returns flags with which a server writes two checkpoints in each round, for --kill."""
        return ["--checkpoint_dir=%s/region-%d" % (self.folder, region),
                "--save_steps=%d" % max(1, self.o.local_steps // 2)] if self.o.kill else []

    def named(self, name):
        return next(p for p in self.processes if p.name == name)

    def play_faults(self):
        faults = [(after, self.net.link(0, 1).cut) for after, _ in self.o.cut]
        faults += [(after + seconds, self.net.link(0, 1).heal) for after, seconds in self.o.cut]
        if self.groups:
            faults += [(after, self.kill) for after in self.o.kill]
        if not faults:
            return
        self.named("worker:0").wait_line("vector loops", self.o.seconds)  # before it joins
        began = time.monotonic()
        far = self.named("worker:1")  # worker in the region of the fault
        for after, act in sorted(faults, key=lambda fault: fault[0]):
            try:  # the worker may end before the fault
                far.popen.wait(max(0, began + after - time.monotonic()))
                note("training was over before %g s: nothing to %s any more" % (
                    after, act.__name__))
                return
            except subprocess.TimeoutExpired:
                note("%s after %.1f s" % (act.__name__, time.monotonic() - began))
                act()

    def kill(self):
        old = self.named("ps:1")
        old.stop(signal.SIGKILL, status=-signal.SIGKILL)
        self.processes.remove(old)
        self.killed.append(old)
        self.processes.append(harness.Process("ps:1", old.argv, ready=True))
        self.processes[-1].wait_ready()

    def of_regions(self):
        return [p for p in self.processes if re.fullmatch(r"ps:\d+", p.name)] if self.groups else []

    def waited(self):
        """Returns the share of the time in which workers waited, from the last line of each
        region's server; None without regions."""
        lines = [re.findall(r"waited for answers .* s, ([\d.]+) % of the time", p.output())
                for p in self.of_regions()]
        said = [float(line[-1]) / 100 for line in lines if line]
        return statistics.mean(said) if said else None

    def left_out(self):
        """Returns the number of rounds that the parent made without all regions; None without
        regions."""
        if not self.groups:
            return None
        n, since = 0, {}
        last = self.steps // self.o.local_steps
        for line in self.named("ps:parent").output().splitlines():
            m = re.search(r"worker (\d+) .*(without it from step|joins at step) (\d+)", line)
            if m and m.group(2).startswith("without"):
                since[m.group(1)] = int(m.group(3))
            elif m and m.group(1) in since:
                n += int(m.group(3)) - since.pop(m.group(1))
        return n + sum(last - step for step in since.values())

    def summary_path(self, i):
        return os.path.join(self.folder, "summary-%d.json" % i)

    def summaries(self):
        for i in range(self.o.workers):
            with open(self.summary_path(i), encoding="utf-8") as f:
                yield json.load(f)
