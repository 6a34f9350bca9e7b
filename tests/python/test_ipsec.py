"""scripts/ipsec/generate: the files that it writes for a description, and refusals with their
reasons."""
# label: unit
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

import harness

IPSEC = harness.source("scripts/ipsec")
sys.path.insert(0, IPSEC)
import capture  # noqa: E402

EU = "[gateway eu]\naddress = 198.51.100.1\ninside = 10.81.0.1\nsubnets = 10.81.0.0/24\n"
US = "[gateway us]\naddress = 198.51.100.2\ninside = 10.82.0.1\nsubnets = 10.82.0.0/24, " \
     "10.92.0.0/16\n"
ASIA = "[gateway asia]\naddress = behind-nat\ninside = 10.83.0.1\nsubnets = 10.83.0.0/24\n" \
       "mtu = 1400\n"


class Generate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="weir-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def run_it(self, text):
        path = os.path.join(self.folder, "description.ini")
        harness.write_file(path, text)
        return harness.run([os.path.join(IPSEC, "generate"), path, self.folder])

    def made(self, text):
        done = self.run_it(text)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def read(self, path):
        return harness.read_text(os.path.join(self.folder, path))

    def test_later_gateway_or_one_behind_nat_dials(self):
        """The gateway that is later in the description dials the earlier one. A gateway behind NAT
        dials all others."""
        self.made(ASIA + EU + US)
        for me, peer, start in (("eu", "us", "none"), ("us", "eu", "start"),
                                ("asia", "eu", "start"), ("eu", "asia", "none"),
                                ("us", "asia", "none")):
            part = self.read(me + "/swanctl.conf").split("    %s-%s {" % (me, peer), 1)[1]
            self.assertEqual(re.search("start_action = (.*)", part).group(1), start, (me, peer))
        self.assertIn("remote_addrs = %any", self.read("eu/swanctl.conf"))
        self.assertIn("local_ts = 10.82.0.0/24, 10.92.0.0/16", self.read("us/swanctl.conf"))

    def test_gateways_behind_nat_have_no_tunnel(self):
        """Each of the two has a tunnel to the third gateway, and none to the other one behind
        NAT."""
        self.made(EU + US.replace("198.51.100.2", "behind-nat") + ASIA)
        for me, peers in (("eu", ["us", "asia"]), ("us", ["eu"]), ("asia", ["eu"])):
            text = self.read(me + "/swanctl.conf")
            self.assertEqual(re.findall(r"^    %s-(\S+) {" % me, text, re.M), peers)
            self.assertEqual(re.findall(r"^(\w+) ", self.read(me + "/peers"), re.M), peers)

    def test_mtu_accounts_for_esp(self):
        """An IP packet of 1500 bytes contains these headers besides the payload: IP 20, UDP 8, ESP
        8, nonce 8, tag 16, and 2 for the length of the padding."""
        for text, eu, asia in (
                (EU + ASIA, 1338, 1338), (EU + US, 1438, None),
                ("[network]\nesp = userspace\n" + EU + US, 1400, None),
                ("[network]\nmode = gre\n" + EU + US, 1476, None),
                ("[network]\nmode = gre-over-ipsec\nmtu = 1400\n" + EU + US, 1334, None)):
            self.made(text)
            self.assertIn("\nMTU=%d\nMSS=%d\n" % (eu, eu - 40), self.read("eu/settings"))
            if asia:
                self.assertIn("\nMTU=%d\n" % asia, self.read("asia/settings"))

    def test_secrets_are_private_and_kept(self):
        """Each pair has a secret, readable by its owner only, and kept when a gateway is added."""
        def of(gateway):
            text = self.read(gateway + "/secrets.conf")
            return dict(re.findall(r"id-2 = (\S+)\n +secret = 0s(\S+)", text))
        self.made(EU + US)
        before = of("eu")["us"]
        self.assertEqual(len(before), 44)
        self.made(EU + US + ASIA)
        self.assertEqual((of("eu")["us"], of("us")["eu"]), (before, before))
        self.assertEqual(of("eu")["asia"], of("asia")["eu"])
        self.assertEqual(len({*of("eu").values(), *of("us").values()}), 3)
        for path in ("secrets", "eu/secrets.conf"):
            mode = os.stat(os.path.join(self.folder, path)).st_mode
            self.assertEqual(stat.S_IMODE(mode), 0o600)

    def test_certificates_made_and_kept(self):
        if not shutil.which("openssl"):
            self.skipTest("needs openssl")
        self.made("[network]\nauth = certs\n" + EU + US)
        first = self.read("us/x509/us.crt")
        self.made("[network]\nauth = certs\n" + EU + US + ASIA)
        self.assertEqual(self.read("us/x509/us.crt"), first)
        for name in ("eu", "us", "asia"):
            paths = ["%s/%s" % (name, p % name) for p in ("x509/%s.crt", "private/%s.key")]
            done = subprocess.run(["openssl", "verify", "-CAfile", "%s/x509ca/ca.crt" % name,
                                   paths[0]], cwd=self.folder, stdout=subprocess.PIPE, text=True)
            self.assertIn("OK", done.stdout)
            mode = os.stat(os.path.join(self.folder, paths[1])).st_mode
            self.assertEqual(stat.S_IMODE(mode), 0o600)
            self.assertFalse(os.path.exists(os.path.join(self.folder, name, "secrets.conf")))
        self.assertIn("certs = us.crt", self.read("us/swanctl.conf"))

    def test_gre_configured(self):
        self.made("[network]\nmode = gre\n" + EU + US)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "eu/swanctl.conf")))
        self.made("[network]\nmode = gre-over-ipsec\n" + EU + US)
        self.assertRegex(self.read("eu/swanctl.conf"),
                         r"mode = transport\n +local_ts = dynamic\[gre\]")

    def test_programs_up_and_down_are_valid(self):
        self.made(EU + US)
        for program in ("up", "down"):
            done = subprocess.run(["bash", "-n", os.path.join(self.folder, "eu", program)])
            self.assertEqual(done.returncode, 0)
        for program in ("up", "down", "check"):
            self.assertTrue(os.access(os.path.join(self.folder, "eu", program), os.X_OK))

    def test_example_accepted(self):
        self.assertIn("1338", self.made(harness.read_text(os.path.join(IPSEC, "example.ini"))))

    def test_bad_descriptions_refused(self):
        nat = EU.replace("198.51.100.1", "behind-nat")
        for text, why in (
                (EU, "two gateways or more"),
                (nat + ASIA, "all gateways are behind NAT"),
                ("[network]\nmode = gre\n" + EU + ASIA, "asia is behind NAT"),
                ("[network]\nmode = gre\nesp = userspace\n" + EU + US, "GRE needs esp = kernel"),
                ("[network]\nmode = x\n" + EU + US, "mode = x: write tunnel or"),
                ("[network]\nspeed = 3\n" + EU + US, "speed: unknown key; the keys are mode"),
                ("[network]\nmtu = 100\n" + EU + US, "'100'; write 576 to 9000"),
                ("[net]\n" + EU + US, r"\[net\]: unknown section"),
                (EU + US.replace("10.92.0.0/16", "10.81.0.0/16"), "overlap"),
                (EU + US.replace("10.92.0.0/16", "10.92.0.1/16"), "has host bits set"),
                (EU + US.replace("100.2", "100.1"), "the same name or address"),
                (EU + US.replace("10.82.0.1", "10.99.0.1"), "is in none of its subnets"),
                (EU + US.replace("inside", "outside"), "outside: unknown key"),
                (EU + US.replace("inside = 10.82.0.1\n", ""), "needs inside ="),
                (EU + US.replace("gateway us", "gateway u.s;"), "a name is up to 10")):
            done = self.run_it(text)
            self.assertEqual(done.returncode, 1, text)
            self.assertRegex(done.stdout, "^generate: .*" + why)


class Kinds(unittest.TestCase):
    """A capture distinguishes these kinds of packets."""
    SUBNETS = [capture.Subnet("10.81.0.0/24"), capture.Subnet("10.82.0.0/24")]

    @staticmethod
    def packet(protocol, payload=b"", source="c6336401", to="c6336402", fragment=0):
        return bytes.fromhex("45000000" "0000%04x" "40%02x0000" % (fragment, protocol) + source +
                             to) + payload

    def test_packets_classified(self):
        nat, ike = bytes.fromhex("1194119400000000"), bytes.fromhex("01f401f400000000")
        for want, packet in (
                ("esp", self.packet(50)), ("gre", self.packet(47)), ("other", self.packet(6)),
                ("esp", self.packet(17, nat + b"\1\2\3\4....")),
                ("ike", self.packet(17, nat + bytes(4) + b"....")),
                ("ike", self.packet(17, nat + b"\xff")), ("ike", self.packet(17, ike + b"....")),
                ("other", self.packet(17, bytes(12))), ("other", b""),
                ("clear", self.packet(6, source="0a510007")),
                ("clear", self.packet(17, nat + b"....", to="0a5200ff")),
                ("other", self.packet(6, to="0a530001"))):
            self.assertEqual(capture.kind(packet, self.SUBNETS), want, packet)


harness.main(__name__)
