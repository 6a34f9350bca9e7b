"""Gateways joined by GRE devices, in clear and over IPSec: needs a kernel with GRE and ESP."""
# label: net waits
import contextlib
import sys
import unittest

import harness
sys.path.insert(0, harness.source("tests/wan"))
import wan  # noqa: E402
from test_wan import Cluster  # noqa: E402

WHY_NOT, WHY_NOT_ESP = wan.why_no_gre(), wan.why_no_gre(ipsec=True)


class Gre(Cluster):
    def through(self, mode):
        """Returns the packets of a job on the line."""
        with wan.Wan(n_hosts=[2, 1], rtt_ms=10, ipsec={"mode": mode}) as net:
            with contextlib.closing(net.capture(0, 1)) as outside:
                got = [s["parameters_sha256"] for s in
                       self.begin(net, "--train_steps=10").finish()]
                seen = outside.stop()
            net.gateway_program(0, "check", "--seconds=0.2")
        self.assertEqual(got, [self.undisturbed("--train_steps=10")] * 2)
        return seen

    @unittest.skipIf(WHY_NOT, WHY_NOT)
    def test_job_crosses_gre_in_clear(self):
        seen = self.through("gre")
        self.assertGreater(seen["gre"]["packets"], 100, seen)

    @unittest.skipIf(WHY_NOT_ESP, WHY_NOT_ESP)
    def test_job_crosses_gre_over_ipsec_encrypted(self):
        seen = self.through("gre-over-ipsec")
        self.assertGreater(seen["esp"]["packets"], 100, seen)
        self.assertEqual([seen[k]["packets"] for k in ("clear", "gre")], [0, 0], seen)


harness.main(__name__)
