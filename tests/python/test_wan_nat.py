"""A region behind NAT trains over a line that carries packets of at most 1400 bytes. In one test
the gateway of the region opens an ESP tunnel; in the other one, without ESP, only its worker opens
connections. Keepalives cross the line while no worker trains."""
# label: net waits
import contextlib
import os
import re
import sys
import unittest

import harness
sys.path.insert(0, harness.source("tests/wan"))
import wan  # noqa: E402
from test_wan import Cluster  # noqa: E402

MTU = 1400
NAT_SECONDS = 10000  # lifetime of NAT's entry of a TCP connection after its last packet
WHY_NOT, WHY_NOT_ESP = wan.why_not(nat=True), wan.why_not(ipsec=True, nat=True)


def nat_entries(net):
    """Returns, for the TCP connections that NAT holds for region 1: seconds since the last packet,
    and which side dialled the other."""
    table = net.regions[1].edge.read("/proc/net/nf_conntrack")
    return [(NAT_SECONDS - int(left), source, to) for left, source, to in re.findall(
        r"tcp +6 (\d+) ESTABLISHED src=(\S+) dst=(\S+)", table)]


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Nat(Cluster):
    def test_worker_dials_out_through_nat(self):
        """The server learns only the address of the NAT gateway, and needs no other one. While
        worker 0 stands still, keepalives keep NAT's entry of worker 1."""
        with wan.Wan(n_hosts=[2, 1], nat=(1,), rtt_ms=10, mtu=MTU) as net:
            if not os.path.exists("/proc/net/nf_conntrack"):
                self.skipTest("this kernel does not list NAT's entries")
            net.regions[1].edge.sysctl("net/netfilter/nf_conntrack_tcp_timeout_established",
                                       NAT_SECONDS)
            job = self.begin(net, "--train_steps=30", "--fault_push_delay_ms=20", model="lenet5")
            job.workers[1].wait_line(r"\(global step: 5\)")
            with harness.paused(job.workers[0]):
                harness.wait_still(job.workers[1], job.ps[0])
                idle = harness.until(lambda: [e for e in nat_entries(net) if e[0] >= 4],
                                     "no packet has crossed for 4 s")
                self.assertEqual({e[1:] for e in idle}, {(net.address(1), net.address(0))})
                harness.until(lambda: all(e[0] < 4 for e in nat_entries(net)),
                              "a keepalive has crossed")
                self.assertTrue(nat_entries(net))
            got = job.finish()
        self.assertEqual([s["exchange"]["reconnects"] for s in got], [0, 0])
        self.assertEqual([s["parameters_sha256"] for s in got],
                         [self.undisturbed("--train_steps=30", model="lenet5")] * 2)


@unittest.skipIf(WHY_NOT_ESP, WHY_NOT_ESP)
class NatEsp(Cluster):
    def test_gateway_dials_out_through_nat(self):
        """The job has certificates. NAT sees UDP only, and the line carries no packet above its
        limit."""
        with wan.Wan(n_hosts=[2, 1], nat=(1,), rtt_ms=10, mtu=MTU, ipsec={"auth": "certs"}) as net:
            pcap = os.path.join(self.dir(), "outside")
            with contextlib.closing(net.capture(0, 1, pcap)) as outside:
                job = self.begin(net, "--train_steps=10", model="lenet5")
                got = [s["parameters_sha256"] for s in job.finish()]
                seen = outside.stop()
            checked = net.gateway_program(1, "check", "--seconds=0.2")
        self.assertEqual(got, [self.undisturbed("--train_steps=10", model="lenet5")] * 2)
        self.assertGreater(seen["esp"]["packets"], 1000, seen)
        self.assertEqual([seen[k]["packets"] for k in ("clear", "gre", "other")], [0, 0, 0], seen)
        self.assertEqual(self.n_found(pcap), 0)
        longest = max(lengths(pcap))
        self.assertLessEqual(longest, MTU)
        self.assertGreater(longest, MTU - 8)  # and not much shorter than the limit
        self.assertRegex(checked, r"ok +path MTU +1338 bytes cross whole")


def lengths(pcap):
    """Yields the lengths of a capture's packets."""
    content = harness.read_bytes(pcap)
    at = 24
    while at < len(content):
        n = int.from_bytes(content[at + 8:at + 12], "little")
        yield n
        at += 16 + n


harness.main(__name__)
