"""A path that silently loses large packets: behind a router the MTU is smaller, and the router's
ICMP messages are dropped. The worker or server whose packets are lost names the cause. If TCP
searches for a size that passes (tcp_mtu_probing), the job runs to its end."""
# label: net waits long
import sys
import unittest

import certs
import harness
import namespaces

sys.path.insert(0, harness.source("tests/wan"))
import wan  # noqa: E402

WHY_NOT = namespaces.why_not() or wan.why_not_nft()
MTU = 1300
# TCP's first pause before it repeats a packet, as on a long line. TCP makes the packet smaller at
# its third repetition, after 7 such pauses.
REPEAT_MS = 900
LOST = (r"packets of 1500 bytes to 10\.84\.%d\.2 are lost while smaller ones arrive: .* "
        r"\(ip link set dev DEVICE mtu 1280\), .* \(sysctl -w net\.ipv4\.tcp_mtu_probing=1\)")
FLAGS = ["--batch_size=50", "--train_steps=20", "--shared_memory=off"]


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Hole(harness.Test):
    """ps in host 0, worker in host 1, the router between them."""

    def setUp(self):
        super().setUp()
        *self.hosts, self.router = (namespaces.Namespace(test=self) for _ in range(3))
        for i, host in enumerate(self.hosts):
            self.router.ip("link add name to%d type veth peer name up0 netns %d" % (i, host.pid),
                           "address add 10.84.%d.1/24 dev to%d" % (i + 1, i),
                           "link set to%d up" % i)
            host.ip("link set lo up", "address add 10.84.%d.2/24 dev up0" % (i + 1),
                    "link set up0 up", "route add default via 10.84.%d.1" % (i + 1))
        self.router.sysctl("net/ipv4/ip_forward", 1)
        namespaces.run(*self.router.enter, "nft", "-f", "-", stdin="""
            table ip hole {
                chain out {
                    type filter hook output priority 0;
                    icmp type destination-unreachable drop
                }
            }""")

    def lose_large(self, to):
        """Loses large packets to this host."""
        self.router.ip("route change 10.84.%d.0/24 dev to%d src 10.84.%d.1 mtu lock %d" %
                       (to + 1, to, to + 1, MTU))

    def slow_down(self):
        for i, host in enumerate(self.hosts):
            host.ip("route change default via 10.84.%d.1 rto_min %dms" % (i + 1, REPEAT_MS))

    def search(self):
        for host in self.hosts:
            host.sysctl("net/ipv4/tcp_mtu_probing", 1)

    def begin(self, ps_flags=(), worker_flags=()):
        job = self.job(n_ps=1, n_workers=1, model="softmax", flags=FLAGS)
        job.ps_hosts, job.worker_hosts = ["10.84.1.2:2221"], ["10.84.2.2:2223"]
        job.start_ps(0, *ps_flags, prefix=self.hosts[0].enter)
        job.start_worker(0, *worker_flags, prefix=self.hosts[1].enter)
        return job

    def check(self, job, who, receiver):
        """The sender reports the loss; then the job ends well, as soon as TCP searches for a
        size."""
        who.wait_line(LOST % (receiver + 1), 90)
        self.search()
        self.end(job)

    def end(self, job):
        job.workers[0].wait(90)
        job.ps[0].wait(60)
        for process in (*job.workers, *job.ps):
            self.assertNotRegex(process.output(), r"step -\d")

    def test_worker_names_the_path(self):
        self.lose_large(to=0)
        self.slow_down()
        job = self.begin()
        self.check(job, job.workers[0], receiver=0)

    def test_server_names_the_path(self):
        self.lose_large(to=1)
        self.slow_down()
        job = self.begin()
        self.check(job, job.ps[0], receiver=1)

    def test_certificates_pass_the_path(self):
        """The certificates of both sides fill a packet."""
        for host in range(2):
            self.lose_large(to=host)
        self.search()
        own = certs.for_job(self.dir(), "10.84.1.2")
        self.end(self.begin(own.flags("ps"), own.flags("worker")))


harness.main(__name__)
