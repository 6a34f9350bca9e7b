"""Network namespaces for the tests that need addresses or links of their own."""
import os
import shutil
import subprocess

import harness


def run(*argv, stdin=None):
    done = subprocess.run(argv, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode != 0:
        raise harness.Failure("%s: %s" % (" ".join(argv), done.stdout.strip()))


class Namespace:
    """A network namespace that lives as long as its holder, which ends with this program's pipe."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo up; exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
        if self.holder.stdout.readline() != b"up\n":
            raise harness.Failure("unshare: %s" % self.holder.stderr.read().decode().strip())
        self.enter = ["nsenter", "--target=%d" % self.holder.pid, "--net"]

    def ip(self, *lines):
        """Each line is an `ip` command without its first word."""
        run(*self.enter, "ip", "-batch", "-", stdin="".join(line + "\n" for line in lines))

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()
        self.holder.stderr.close()


class Network:
    """n namespaces, each with one link to a bridge that has a namespace of its own."""

    def __init__(self, n):
        self.switch, self.hosts = Namespace(), []
        self.switch.ip("link add name bridge type bridge", "link set bridge up")
        for i in range(n):
            host = Namespace()
            self.hosts.append(host)
            self.switch.ip("link add name port%d type veth peer name up0 netns %d" %
                           (i, host.holder.pid),
                           "link set port%d master bridge" % i, "link set port%d up" % i)
            host.ip("link set lo up", "address add %s/24 dev up0" % self.address(i),
                    "link set up0 up")

    def address(self, i):
        return "10.83.0.%d" % (i + 1)

    def link(self, i, up):
        """The bridge's end: the host itself sees its cable lose its signal."""
        self.switch.ip("link set port%d %s" % (i, "up" if up else "down"))

    def close(self):
        for space in [*self.hosts, self.switch]:
            space.close()


def why_not(bridge=False):
    """None, or why there can be no namespaces here (and no bridge between them)."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("unshare", "nsenter", "ip"):
        if not shutil.which(tool):
            return "needs %s (util-linux, iproute2)" % tool
    try:
        (Network(1) if bridge else Namespace()).close()
    except harness.Failure as e:
        return "no network namespace can be made here: %s" % e
    return None
