#!/usr/bin/python3
"""libweir as a client with TLS. It refuses servers, and servers refuse it, with the messages of
docs/guide/security.md. The host program's own TLS connections do not change."""
# label: cluster
import os
import re
import sys
import tempfile
import unittest

import certs
import harness

LIBRARY = os.path.join(os.path.dirname(harness.BIN), "lib/libweir.so.0")
HOST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tls_host.py")


def setUpModule():
    global folder, own, foreign
    folder = tempfile.TemporaryDirectory(prefix="weir-certs-")
    own = certs.for_job(os.path.join(folder.name, "own"))
    foreign = certs.for_job(os.path.join(folder.name, "foreign"))
    own.make_special("site", "DNS:elsewhere", usage="serverAuth")


def tearDownModule():
    folder.cleanup()


@unittest.skipIf(harness.SANITIZE, "the library is loaded into a Python without a sanitizer")
class LibweirTls(harness.Test):
    def s_server(self, name, *words):
        """Starts OpenSSL's own server with this certificate; returns its address."""
        address = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        server = self.start("s_server", ["openssl", "s_server", "-accept", address, "-www",
                                         "-cert", own.path(name + ".pem"), "-key",
                                         own.path(name + ".key"), *words])
        server.wait_line("ACCEPT")
        self.at_end(lambda: server.stop(status=None))
        return address

    def ps(self, *flags):
        """Starts a ps; returns its address."""
        job = self.job(n_workers=1)
        self.stop_at_end(job.start_ps(0, *flags))
        return job.ps_hosts[0]

    def host(self, address, line, *flags):
        """Starts a member, waits for the line with the pattern, and checks the host's own
        connections: they use TLS 1.2, to a server with a certificate that libweir would refuse."""
        site_address = self.s_server("site", "-tls1_2")
        p = self.start("host", [sys.executable, "-B", HOST, LIBRARY, site_address, line,
                                "ps_hosts=" + address, "n_workers=1", "task_index=0",
                                "train_steps=1", *(f[2:] for f in flags)])
        for when in ("before", "beside"):
            p.wait_line("own connection %s: TLSv1.2" % when)
        p.wait_line("unloaded: True")
        p.wait_line("own connection after: TLSv1.2")
        p.wait(30)

    def test_server_of_tls_1_2_refused(self):
        for words in (["-tls1_2"], ["-no_tls1_3"]):
            address = self.s_server("ps", "-alpn", "h2", *words)
            self.host(address, "the server at %s is refused: it offers no TLS 1.3$" %
                      re.escape(harness.LOOPBACK), *own.flags("worker"))

    def test_servers_with_bad_certificates_refused(self):
        own.make("ps", "expired_ps", harness.LOOPBACK, days=-1)
        own.make("ps", "elsewhere", "ps.example", "10.0.0.1")
        at = "the server at %s is refused: its certificate " % re.escape(harness.LOOPBACK)
        for flags, line in [
                (foreign.flags("ps"), at + r"\(CN=ps\) is not signed by a CA of .*own/ca\.pem"),
                (own.flags("expired_ps"), at + r"\(CN=expired_ps\) has expired on 20.*make a new"),
                (own.flags("elsewhere"), at + r"\(CN=elsewhere\) does not name this host; make"),
                ([], "the server there does not speak TLS: start it with --tls_cert")]:
            with self.subTest(line):
                self.host(self.ps(*flags), line, *own.flags("worker"))

    def test_server_with_certificate_of_worker_refused(self):
        own.make_special("posing", "URI:weir://role/worker,IP:" + harness.LOOPBACK,
                         usage="serverAuth,clientAuth")
        address = self.s_server("posing", "-alpn", "h2")
        self.host(address, r"\(CN=posing\) is for the role worker, but a server's certificate must "
                  "be for the role ps", *own.flags("worker"))

    def test_members_with_bad_certificates_refused_by_server(self):
        own.make("worker", "expired", days=-1)
        address = self.ps(*own.flags("ps"))
        at = "the server at %s refuses this program, whose certificate is " % \
            re.escape(harness.LOOPBACK)
        for flags, line in [
                (own.flags("expired"), at + r".*expired\.pem \(certificate expired\): it has expi"),
                (foreign.flags("worker", ca=own),
                 at + r".*worker\.pem \(unknown CA\): it is not signed by a CA of the server's")]:
            with self.subTest(line):
                self.host(address, line, *flags)

    def test_member_joins_beside_own_tls(self):
        """The member accepts a server with a good certificate, and the host's own connections do
        not change in this case, either."""
        address = self.ps(*own.flags("ps"), "--serve")
        self.host(address, "is on this host: payloads are sent through shared memory",
                  *own.flags("worker"))


harness.main(__name__)
