"""Jobs of several regions, for tests: a parent group, and groups of at least one server each."""
import random
import re
import select
import socket
import threading

import harness

FLAGS = ["--hidden_units=24", "--batch_size=10", "--seed=3", "--intra_op_threads=1",
         "--learning_rate=0.01", "--log_every=1"]


class LossyLine:
    """Forwards connections to a server. It loses a share of the bursts towards the server, and
    closes the connection of each lost burst. A burst begins after 20 ms without bytes, with more
    bytes than a few headers have."""

    def __init__(self, test, to, share, seed=1):
        self.to, self.share, self.random = to, share, random.Random(seed)
        self.n_bursts = self.n_lost = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()
        test.addCleanup(self.socket.close)

    def accept(self):
        while True:
            try:
                near, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(near,), daemon=True).start()

    def carry(self, near):
        host, port = self.to.rsplit(":", 1)
        try:
            with near, socket.create_connection((host, int(port))) as far:
                self.copy(near, far)
        except OSError:
            pass  # both sides see the shutdown

    def copy(self, near, far):
        quiet = True
        while True:
            ready, _, _ = select.select([near, far], [], [], 0.02)
            quiet = quiet or near not in ready
            for end, other in ((near, far), (far, near)):
                data = end.recv(1 << 16) if end in ready else None
                if data == b"":
                    return
                if end is near and data and quiet and len(data) > 1000:
                    quiet = False
                    self.n_bursts += 1
                    if self.random.random() < self.share:
                        self.n_lost += 1
                        return
                if data:
                    other.sendall(data)


class Test(harness.Test):
    """Jobs with a parent group of one or more servers, and regions, each with one or more servers
    and workers of its own."""

    def begin(self, steps=60, every=10, n=2, n_workers=2, n_parents=1, flags=(), region=(),
              parent=(), keeps=False, late=(), model="mlp", n_servers=1, lossy=0):
        self.parents = self.job(n_ps=n_parents, n_workers=0)
        self.parent_flags = list(parent)
        self.parents.start_servers(*parent)
        self.regions, self.region_flags, self.lines = [], [], []
        for i in range(n):
            job = self.job(n_ps=n_servers, n_workers=n_workers, model=model,
                           flags=[*FLAGS, "--train_steps=%d" % steps, *flags])
            hosts = self.parents.ps_hosts
            if lossy:
                self.lines += [LossyLine(self, host, lossy, seed=i) for host in hosts]
                hosts = [line.address for line in self.lines[-n_parents:]]
            self.region_flags.append([
                "--parent_hosts=" + ",".join(hosts), "--regions=%d" % n,
                "--region_index=%d" % i, "--region_steps=%d" % every, *region,
                *(["--checkpoint_dir=%s/region-%d" % (self.dir(), i), "--save_steps=7"]
                  if keeps else [])])
            self.regions.append(job)
            if i not in late:
                job.start(self.region_flags[i])
        return self.regions

    def begin_held(self, n_steps, late=(), **kwargs):
        """Starts the regions. Region 0 stops training after about n_steps, and so do the other
        regions. Returns its gate and the regions."""
        self.begin(late=(0, *late), **kwargs)
        gate = self.regions[0].hold(n_steps)
        self.regions[0].start(self.region_flags[0])
        return gate, *self.regions

    def parent_waits_for(self, member):
        """Waits until the parent's server has the contributions of all other members."""
        (server,) = self.parents.report("servers")
        harness.until(lambda: self.parents.report("members")[member]["awaited_chunks"] ==
                      server["chunks"],
                      "the parent to have all but the contribution of region %d" % member)

    def moved(self, job, n_rounds):
        """Returns (MB of the parameters, MB sent, MB received) of a region's last round."""
        sent, received = re.search(
            "round %d of %d exchanged, .* ([0-9.]+) MB sent and ([0-9.]+) MB received" %
            (n_rounds, n_rounds), job.ps[0].output()).groups()
        n = re.search(r"model 'mlp': (\d+) parameters", job.workers[0].output()).group(1)
        return int(n) * 4e-6, float(sent), float(received)

    def check_drift_to_the_end(self, every, region=(), flags=()):
        """Checks that a single region whose parent stands still during its last steps ends like an
        undisturbed region. This holds because the parent's version, without another region and with
        these flags, is the region's own value."""
        ends = {}
        for drifts in (False, True):
            path = "%s/drifts-%d.safetensors" % (self.dir(), drifts)
            a, = self.begin(steps=60, every=every, n=1, region=[
                *region, "--max_region_drift=60", "--outer_optimizer=sgd",
                "--outer_learning_rate=1"],
                flags=[*flags, "--export=" + path, "--fault_push_delay_ms=10"])
            if drifts:
                a.workers[0].wait_line(r"\(global step: 12\)")
                with harness.paused(self.parents.ps[0]):
                    a.ps[0].wait_line("the region continues alone")
                    a.workers[0].wait_line(r"\(global step: 59\)")
                    harness.wait_still(*a.workers)
            self.finish()
            ends[drifts] = harness.read_safetensors(path)
        for name, (_, alone) in ends[False].items():
            drifted = ends[True][name][1]
            self.assertLess(max(abs(x - y) for x, y in zip(alone, drifted)), 1e-5, name)

    def finish(self, seconds=120):
        """Checks that all workers end with the same parameters; returns their digest."""
        digests = [s["parameters_sha256"] for job in self.regions for s in job.finish(seconds)]
        self.wait_all(self.parents.ps, 30)
        self.assertEqual(len(set(digests)), 1, digests)
        return digests[0]

    def run_all(self, **kwargs):
        self.begin(**kwargs)
        return self.finish()
