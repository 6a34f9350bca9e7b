"""Network namespaces for the tests that need addresses or links of their own."""
import json
import os
import shutil
import subprocess

import harness


def run(*argv, stdin=None, cwd=None):
    done = harness.run(argv, input=stdin, cwd=cwd)
    if done.returncode != 0:
        raise harness.Failure("%s: %s" % (" ".join(argv), done.stdout.strip()))


class Namespace:
    """A network namespace that lives as long as its holder, which ends with this program's pipe."""

    def __init__(self, argv=("unshare", "--net", "sh", "-c", "echo up; exec cat"), test=None):
        """argv: another command that holds the namespace, prints "up" and exits at the end of its
        stdin. test: the namespace ends when this test ends."""
        self.holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
        if self.holder.stdout.readline() != b"up\n":
            why = self.holder.stderr.read().decode().strip()
            self.close()
            raise harness.Failure("unshare: %s" % why)
        self.pid = self.holder.pid  # id of a process in the namespace
        self.enter = ["nsenter", "--target=%d" % self.pid, "--net"]
        if test:
            test.addCleanup(self.close)

    def ip(self, *lines):
        """Runs each line as an `ip` command."""
        run(*self.enter, "ip", "-batch", "-", stdin="".join(line + "\n" for line in lines))

    def sysctl(self, name, value):
        """name: in the form "net/ipv4/ip_forward"."""
        run(*self.enter, "sh", "-c", "echo %s >/proc/sys/%s" % (value, name))

    def read(self, path):
        """Returns a file below /proc/net, whose content differs between namespaces."""
        return harness.check_output([*self.enter, "cat", path])

    def device_statistics(self, device):
        """Returns the kernel's counters: {"rx": {"bytes", "packets", ...}, "tx": {...}}."""
        out = subprocess.run([*self.enter, "ip", "-json", "-statistics", "link", "show", "dev",
                              device], stdout=subprocess.PIPE, check=True).stdout
        return json.loads(out)[0]["stats64"]

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()
        self.holder.stderr.close()


class Network:
    """n namespaces, each with one link to a bridge that has a namespace of its own."""

    def __init__(self, n, test=None):
        """test: the network ends when this test ends."""
        self.switch, self.hosts = Namespace(test=test), []
        self.n_cuts = {}  # (sender, receiver): number of one-way cuts
        self.switch.ip("link add name bridge type bridge", "link set bridge up")
        for i in range(n):
            host = Namespace(test=test)
            self.hosts.append(host)
            self.switch.ip("link add name port%d type veth peer name up0 netns %d" %
                           (i, host.holder.pid),
                           "link set port%d master bridge" % i, "link set port%d up" % i)
            host.ip("link set lo up", "address add %s/24 dev up0" % self.address(i),
                    "link set up0 up")

    def address(self, i):
        return "10.83.0.%d" % (i + 1)

    def link(self, i, up):
        """Sets the bridge's end of the link up or down. If it is down, the host detects that its
        cable has no signal."""
        self.switch.ip("link set port%d %s" % (i, "up" if up else "down"))

    def limit(self, i, kbit, to):
        """Limits the rate of the traffic to the host (to), or from it. kbit: kbit/s; 0 removes the
        limit."""
        space, device = (self.switch, "port%d" % i) if to else (self.hosts[i], "up0")
        run(*space.enter, "tc", "qdisc", "replace" if kbit else "delete", "dev", device, "root",
            *(["tbf", "rate", "%dkbit" % kbit, "burst", "4kb", "latency", "1s"] if kbit else []))

    def one_way(self, i, direction, cut):
        """Cuts one direction. "out": nothing that host i sends arrives; "in": nothing arrives that
        is sent to host i. The host's cable keeps its signal: the sender has a wrong hardware
        address of the receiver."""
        for other in range(len(self.hosts)):
            if other != i:
                self.pair(*((i, other) if direction == "out" else (other, i)), cut)

    def pair(self, sender, to, cut):
        """Cuts or joins a pair of hosts. A pair that was cut n times is joined after n calls,
        because it may be part of several cuts."""
        before = self.n_cuts.get((sender, to), 0)
        self.n_cuts[sender, to] = before + (1 if cut else -1)
        if cut and before == 0:
            self.hosts[sender].ip("neighbour replace %s lladdr 02:00:00:00:00:63 dev up0 "
                                  "nud permanent" % self.address(to))
        elif not cut and before == 1:
            self.hosts[sender].ip("neighbour delete %s dev up0" % self.address(to))

    def close(self):
        for space in [*self.hosts, self.switch]:
            space.close()


def why_not(bridge=False):
    """Returns None, or why there can be no namespaces here (or no bridge between them)."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("unshare", "nsenter", "ip", "tc"):
        if not shutil.which(tool):
            return "needs %s (util-linux, iproute2)" % tool
    try:
        (Network(1) if bridge else Namespace()).close()
    except harness.Failure as e:
        return "no network namespace can be made here: %s" % e
    return None
