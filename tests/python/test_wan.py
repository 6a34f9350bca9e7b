"""The emulated line between namespaces works as configured. Two regions train through IKEv2 and ESP
and end with the same bits as on one network, also when the line is cut for a while. No parameters
are in clear on the line.

The tests check only figures that no busy machine changes: nothing arrives too early or too fast,
and losses are counted. The line's arithmetic has a test of its own (wan_shaper_test)."""
# label: net waits
import contextlib
import ctypes
import os
import re
import socket
import struct
import sys
import tempfile
import time
import unittest

import harness
import namespaces
sys.path.insert(0, harness.source("tests/wan"))
import wan  # noqa: E402

CLONE_NEWNET = 0x40000000
WHY_NOT_LINE, WHY_NOT_WAN = wan.why_not(gateways=False), wan.why_not()
WHY_NOT = wan.why_not(ipsec=True)
FLAGS = ["--batch_size=20", "--seed=3", "--intra_op_threads=1", "--log_every=1"]
PAYLOAD, IP_UDP = 472, 28


def socket_in(space, address):
    """Returns a UDP socket of a namespace."""
    with open("/proc/self/ns/net", "rb") as home, \
            open("/proc/%d/ns/net" % space.pid, "rb") as there:
        for ns in (there, home):
            if harness.LIBC.setns(ns.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            if ns is there:
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, 4000))
    s.settimeout(30 * harness.PATIENCE)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    return s


@unittest.skipIf(WHY_NOT_LINE, WHY_NOT_LINE)
class Line(harness.Test):
    def line(self, **flags):
        """Returns two namespaces, the line, and a socket at each end."""
        spaces = [namespaces.Namespace(test=self) for _ in range(2)]
        for space in spaces:
            # The kernel would send IPv6 packets of its own.
            space.sysctl("net/ipv6/conf/default/disable_ipv6", 1)
        link = wan.Link(*spaces, "wan0", "wan0", **flags)
        self.addCleanup(link.close)
        for space, me, peer in ((spaces[0], 1, 2), (spaces[1], 2, 1)):
            space.ip("address add 10.0.0.%d peer 10.0.0.%d/32 dev wan0" % (me, peer),
                     "link set wan0 up")
        ends = [socket_in(space, "10.0.0.%d" % i) for i, space in enumerate(spaces, 1)]
        for end in ends:
            self.addCleanup(end.close)
        return link, ends, spaces

    @staticmethod
    def put(end, n):
        for i in range(n):
            end.sendto(struct.pack("<Id", i, time.monotonic()) + bytes(PAYLOAD - 12),
                       ("10.0.0.2", 4000))

    @staticmethod
    def receive(end, n):
        """Returns [(number, seconds on the way, time of arrival)]."""
        got = []
        for _ in range(n):
            number, sent = struct.unpack_from("<Id", end.recv(2048))
            now = time.monotonic()
            got.append((number, now - sent, now))
        return got

    def test_line_has_its_delay_rate_and_order(self):
        """At 4 Mbit/s a packet of 500 bytes lasts a millisecond."""
        _, (a, b), spaces = self.line(rtt_ms=60, rate_mbit=4)
        for _ in range(5):
            self.put(a, 1)
            self.assertGreaterEqual(self.receive(b, 1)[0][1], 0.03)
        began = time.monotonic()
        self.put(a, 400)
        got = self.receive(b, 400)
        self.assertEqual([g[0] for g in got], list(range(400)))
        self.assertGreaterEqual(got[-1][2] - began, 0.95 * 0.4)
        for space, way in ((spaces[0], "tx"), (spaces[1], "rx")):
            counts = space.device_statistics("wan0")[way]
            self.assertEqual((counts["packets"], counts["bytes"]),
                             (405, 405 * (PAYLOAD + IP_UDP)))

    def test_number_format_follows_line(self):
        """A worker with --wire_dtype=auto chooses the number format by the line."""
        _, _, spaces = self.line(rtt_ms=60, rate_mbit=4)
        job = self.job(n_workers=1, model="mlp", flags=[
            *FLAGS, "--hidden_units=32", "--train_steps=20", "--local_steps=10",
            "--wire_dtype=auto"])
        job.ps_hosts, job.worker_hosts = ["10.0.0.1:2221"], ["10.0.0.2:2222"]
        job.start_ps(0, prefix=spaces[0].enter)
        job.start_worker(0, prefix=spaces[1].enter)
        m = job.workers[0].wait_line("number format for the link to ps:0 .*: (int[48]): "
                                     r"([\d.]+) Mbit/s and ([\d.]+) ms .* \(10 steps of 100 ms\)")
        self.assertLess(float(m.group(2)), 4.5)
        self.assertGreaterEqual(float(m.group(3)), 60)
        job.workers[0].wait_line("this job's number format: %s for contributions" % m.group(1))
        job.finish(60)

    def test_losses_depend_on_seed(self):
        """The line loses 5 % of 2000 packets, which is 100 on average. Four times the standard
        deviation is 39."""
        lost = set()
        for _ in range(2):
            link, (a, b), _ = self.line(loss_percent=5, seed=11)
            self.put(a, 2000)
            way = harness.until(
                lambda l=link: [w for w in [l.stats()["a_to_b"]]
                                if w["out"] + w["lost"] == 2000 and not w["waiting"]],
                "all packets have arrived or are lost")[0]
            there = {g[0] for g in self.receive(b, way["out"])}
            self.assertEqual(len(there) + way["lost"], 2000)
            self.assertAlmostEqual(way["lost"], 100, delta=39)
            lost.add(frozenset(set(range(2000)) - there))
        self.assertEqual(len(lost), 1)

    def test_cut_line_works_after_repair(self):
        link, (a, b), _ = self.line(rtt_ms=2)
        self.put(a, 1)
        self.receive(b, 1)
        self.assertTrue(link.cut()["cut"])
        self.put(a, 5)
        harness.until(lambda: link.stats()["a_to_b"]["cut"] == 5, "five packets are cut")
        link.heal()
        self.put(a, 1)
        self.assertEqual([g[0] for g in self.receive(b, 1)], [0])
        b.setblocking(False)
        with self.assertRaises(BlockingIOError):
            b.recv(2048)

    def test_full_queue_drops(self):
        """The queue of 64 KB and the token bucket hold far less than the test sends at once."""
        link, (a, b), _ = self.line(rate_mbit=1, queue_kb=64)
        self.put(a, 1000)
        way = harness.until(lambda: [w for w in [link.stats()["a_to_b"]]
                                     if w["out"] + w["full"] == 1000], "all sent or dropped")[0]
        self.assertGreater(way["full"], 500)
        self.assertEqual(len(self.receive(b, way["out"])), way["out"])

    def test_jitter_lies_around_delay(self):
        _, (a, b), _ = self.line(rtt_ms=40, jitter_ms=15)
        self.put(a, 300)
        got = self.receive(b, 300)
        self.assertGreaterEqual(min(g[1] for g in got), 0.005)
        self.assertNotEqual([g[0] for g in got], list(range(300)))
        self.assertEqual(sorted(g[0] for g in got), list(range(300)))

    @unittest.skipIf(WHY_NOT_WAN, WHY_NOT_WAN)
    def test_failed_set_up_leaves_nothing(self):
        """No process and no file is left when the last step of the set-up fails."""
        with self.assertRaisesRegex(harness.Failure, "mode = pigeon: write tunnel or"):
            wan.Wan(n_regions=3, nat=(2,) if not wan.why_not(nat=True) else (),
                    ipsec={"mode": "pigeon"})
        self.assertEqual(harness.read_text("/proc/self/task/%d/children" % os.getpid()), "")
        self.assertEqual([name for name in os.listdir(tempfile.gettempdir())
                          if name.startswith("weir-wan-%d-" % os.getpid())], [])


class Cluster(harness.Test):
    """One ps and a worker in region 0, a worker in region 1. All run on one machine: without
    --shared_memory=off payloads would use its memory."""

    def begin(self, net, *flags, model="softmax"):
        job = self.job(n_workers=2, model=model, flags=[*FLAGS, *flags])
        places = [(0, 1), (1, 0)]
        job.ps_hosts = [net.address(0) + ":2221"]
        job.worker_hosts = [net.address(*p) + ":2223" for p in places]
        job.start_ps(0, "--shared_memory=off", "--worker_timeout=120",
                     prefix=net.regions[0].hosts[0].enter)
        for i, (region, host) in enumerate(places):
            job.start_worker(i, *(["--export=" + self.export()] if i == 1 else []),
                             prefix=net.regions[region].hosts[host].enter)
        return job

    def export(self):
        return self.path("parameters.safetensors")

    def undisturbed(self, *flags, model="softmax"):
        return self.undisturbed_digest(n_workers=2, model=model, flags=[*FLAGS, *flags])

    def parameter_bytes(self):
        """Returns parts of the final parameters, as they are sent."""
        values = b"".join(v.tobytes() for _, v in harness.read_safetensors(self.export()).values())
        parts = {values[at:at + 32] for at in range(0, len(values) - 32, len(values) // 50)}
        return [p for p in parts if len(set(p)) > 16]  # no zeros, which may be anywhere

    def n_found(self, pcap):
        seen = harness.read_bytes(pcap)
        return sum(part in seen for part in self.parameter_bytes())


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Esp(Cluster):
    def test_training_through_esp_same_bits_and_encrypted(self):
        """A job across regions ends with the bits of a job within one. Parameters cross region 1's
        own network in clear, and the line between the regions encrypted."""
        with wan.Wan(n_hosts=[2, 1], rtt_ms=20, rate_mbit=100, ipsec={}) as net:
            pcaps = [self.path(name) for name in ("inside", "outside")]
            subnets = [r.subnet for r in net.regions]
            with contextlib.closing(net.capture(1, 0, pcaps[1])) as outside, contextlib.closing(
                    wan.Capture(net.regions[1].gateway, "lan", subnets, pcaps[0])) as inside:
                before = net.counters(1)
                got = [s["parameters_sha256"] for s in self.begin(net, "--train_steps=12").finish()]
                crossed = {k: v - before[k] for k, v in net.counters(1).items()}
                seen, seen_inside = outside.stop(), inside.stop()
            checked = net.gateway_program(0, "check", "--seconds=0.2")
        self.assertEqual(got, [self.undisturbed("--train_steps=12")] * 2)
        self.assertGreater(seen["esp"]["packets"], 100, seen)
        self.assertEqual([seen[k]["packets"] for k in ("clear", "gre", "other")], [0, 0, 0], seen)
        self.assertGreater(seen_inside["clear"]["bytes"], 2 * 12 * 31400)  # 7850 floats
        self.assertGreater(min(crossed["rx_bytes"], crossed["tx_bytes"]), 12 * 31400)
        self.assertGreater(len(self.parameter_bytes()), 20)
        self.assertGreater(self.n_found(pcaps[0]), 10)
        self.assertEqual(self.n_found(pcaps[1]), 0)
        self.assertRegex(checked, r"ok +ping +10\.82\.0\.1: \d of 5 back")
        self.assertRegex(checked, r"ok +path MTU +1400 bytes cross whole")
        self.assertRegex(checked, r"ok +outside +ESP: packets: esp \d+")

    def test_cut_of_esp_line_changes_no_bit(self):
        """The cut is in the middle of training, and longer than the retries of any layer."""
        with wan.Wan(n_hosts=[2, 1], rtt_ms=10, ipsec={}) as net:
            job = self.begin(net, "--train_steps=40", "--fault_push_delay_ms=20")
            job.workers[1].wait_line(r"\(global step: 10\)")
            link = net.link(0, 1)
            link.cut()
            harness.wait_still(*job.workers)
            step = job.workers[1].global_step()
            self.assertLess(step, 40)
            self.assertGreater(sum(link.stats()[way]["cut"] for way in ("a_to_b", "b_to_a")), 0)
            time.sleep(2)
            self.assertEqual(job.workers[1].global_step(), step)
            link.heal()
            got = [s["parameters_sha256"] for s in job.finish()]
        self.assertEqual(got, [self.undisturbed("--train_steps=40")] * 2)
        self.assertNotIn("generation 1.2", job.ps[0].output())


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Generated(harness.Test):
    """charon accepts the files of scripts/ipsec/generate for modes that this kernel may lack."""

    def test_charon_accepts_gre_over_ipsec(self):
        gateway = wan.Gateway()
        self.addCleanup(gateway.close)
        folder = self.dir()
        description = os.path.join(folder, "description.ini")
        harness.write_file(
            description, "[network]\nmode = gre-over-ipsec\nauth = certs\n"
            "[gateway a]\naddress = 198.51.100.1\ninside = 10.81.0.1\n" "subnets = 10.81.0.0/24\n"
            "[gateway b]\naddress = 198.51.100.2\ninside = 10.82.0.1\n" "subnets = 10.82.0.0/24\n")
        wan.run(os.path.join(wan.IPSEC, "generate"), description, folder)
        # The test omits the kernel's part, which needs GRE.
        up = harness.read_text(os.path.join(folder, "a/up"))
        up = re.sub(r"^.*\|\| gre_up$", "", up, flags=re.M)
        harness.write_file(os.path.join(folder, "a/up"), up)
        wan.run(*gateway.enter, os.path.join(folder, "a/up"))
        self.assertIn("added vici connection: a-b", gateway.log())
        self.assertNotRegex(gateway.log(), "loading connection .* failed|unknown option")
        wan.run(*gateway.enter, os.path.join(folder, "a/down"))


harness.main(__name__)
