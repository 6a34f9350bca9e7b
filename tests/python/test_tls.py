"""TLS and tokens with real certificates: jobs that use them, refusals with a reason on both sides,
the permissions of each role, and new certificate files without a restart."""
# label: cluster sanitize
import os
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

import certs
import harness
import preload
from relay import Relay

TRAIN = ["--train_steps=6", "--batch_size=12", "--intra_op_threads=1", "--log_every=1"]
RETRY, USAGE = 138, 2
NO_LOCALHOST = harness.why_no_localhost()
METHODS = {"Weir/Join": "worker", "Weir/Leave": "worker", "Weir/Exchange": "worker",
           "Weir/Evaluate": "worker", "Reports/Report": "worker", "Weir/Coordinate": "ps",
           "Weir/Fetch": "ps", "Weir/Squares": "ps", "Region/Gate": "ps",
           "Weir/Command": "admin"}
TOKENS = {role: ("%s-0123456789" % role).ljust(20, "x") for role in ("ps", "worker", "admin")}

# For LD_PRELOAD: the file whose name is in the file $HANGS does not answer, as on a lost NFS mount.
HANGS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void hang(const char *path)
{
    char name[4096];
    for (ssize_t n;; usleep(1000)) {
        long fd = syscall(SYS_openat, AT_FDCWD, getenv("HANGS"), O_RDONLY);
        if (fd < 0)
            return;
        n = read(fd, name, sizeof name - 1);
        close(fd);
        if (n < 0 || n != (ssize_t)strlen(path) || memcmp(name, path, n) != 0)
            return;
    }
}

int stat(const char *path, struct stat *st)
{
    int (*next)(const char *, struct stat *) = dlsym(RTLD_NEXT, "stat");
    hang(path);
    return next(path, st);
}

int open(const char *path, int flags, ...)
{
    hang(path);
    return syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
}
"""


def setUpModule():
    global folder, own, foreign
    folder = tempfile.TemporaryDirectory(prefix="weir-certs-")
    own = certs.for_job(os.path.join(folder.name, "own"))
    foreign = certs.for_job(os.path.join(folder.name, "foreign"))
    own.make("admin", "admin")


def tearDownModule():
    folder.cleanup()


class Secured(harness.Test):
    def ctl(self, addr, *words, status=0):
        """Returns both outputs of one call."""
        argv = [harness.program("weirctl"), "--ps_hosts=" + addr, *words]
        p = harness.run(argv, stdin=subprocess.DEVNULL, timeout=30 * harness.PATIENCE)
        self.assertEqual(p.returncode, status, "weirctl %s: %s" % (words, p.stdout))
        return p.stdout

    def server(self, *flags, **options):
        """Starts a server alone, which waits for workers until the test ends; returns (process, its
        address)."""
        job = self.job(n_workers=1)
        return self.stop_at_end(job.start_ps(0, *flags, **options)), job.ps_hosts[0]

    def hangs(self):
        """Returns the environment of a program with HANGS, and a function hang(path): from then on
        reads of this file hang; None ends that."""
        library, marker = preload.library(self, HANGS), self.path("hanging")

        def hang(path):
            if path:
                certs.write_secret(marker, path)
            else:
                os.unlink(marker)
        return dict(os.environ, LD_PRELOAD=library, HANGS=marker), hang


class Tls(Secured):
    def test_job_over_tls_trains_like_plain_job(self):
        """Servers call each other, too."""
        flags = [*TRAIN, "--shared_memory=off", "--chunk_bytes=5120", "--clip_norm=1", "--seed=3",
                 "--optimizer=sgd"]
        seen = []
        for secured in (False, True):
            job = self.job(n_ps=2, n_workers=2, flags=flags)
            job.start(own.flags("ps") if secured else [], own.flags("worker") if secured else [])
            seen.append([s["parameters_sha256"] for s in job.finish()])
        self.assertEqual(seen[0], seen[1])
        job.ps[0].wait_line(r"TLS: certificate .*CN=ps, role ps, valid until 20")

    def test_shared_memory_used_with_tls(self):
        """Processes of one host use shared memory for payloads also with TLS: the join, which
        arranges that, is encrypted."""
        job = self.job(n_workers=1, flags=TRAIN)
        job.start_ps(0, *own.flags("ps"))
        job.start_worker(0, *own.flags("worker")).wait_line(
            "payloads are sent through shared memory")
        job.finish()

    def test_bad_client_certificates_refused(self):
        """The test compares the error of the client and the log line of the server."""
        own.make("worker", "expired", days=-1)
        own.make_special("early", "URI:weir://role/worker", start="20980101000000Z")
        own.make_special("server", "URI:weir://role/worker", usage="serverAuth")
        cases = [
            (foreign.flags("worker", ca=own),
             r"refuses this program.*unknown CA.*not signed by a CA of the server's --tls_ca",
             r"\(CN=worker\) is not signed by a CA of .*own/ca\.pem"),
            (own.flags("expired"), r"refuses this program.*certificate expired.*put a new one",
             r"\(CN=expired\) has expired on 20"),
            (own.flags("early"), r"refuses this program",
             r"\(CN=early\) is not valid before 2098-01-01.*clocks"),
            (own.flags("server"), r"refuses this program.*not made for a client",
             r"\(CN=server\) is not made for a client"),
            ([], r"not reachable: .*Socket closed; does it use TLS \(--tls_cert\), or "
             r"has it no descriptor left \(see its log\)\?",
             r"it does not speak TLS; start it with --tls_cert"),
        ]
        ps, addr = self.server(*own.flags("ps"))
        for flags, client, server in cases:
            with self.subTest(server):
                status = 1 if flags else RETRY
                self.assertRegex(self.ctl(addr, *flags, "status", status=status), client)
                ps.wait_line(r"the client at 127\.\S+:\d+ is refused: (its certificate )?" + server)

    def test_foreign_clients_refused_by_alerts(self):
        """Foreign clients receive TLS' own alerts."""
        ps, addr = self.server(*own.flags("ps"))
        for words, client, server in [
                ([], "tlsv13 alert certificate required", "it has shown no certificate"),
                (["-cert", own.path("worker.pem"), "-key", own.path("worker.key"), "-tls1_2"],
                 "alert protocol version", "it offers no TLS 1.3")]:
            argv = ["openssl", "s_client", "-connect", addr, "-alpn", "h2", "-CAfile",
                    own.path("ca.pem"), *words]
            p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
            # When the output of openssl ends, the server has answered.
            text = "".join(iter(p.stdout.readline, ""))
            p.stdin.close()
            p.wait()
            p.stdout.close()
            self.assertRegex(text, client)
            ps.wait_line("is refused: " + server)

    def test_server_chooses_cipher(self):
        """Servers choose the cipher from the client's offer, whatever its order (libweir's, other
        clients')."""
        ps, addr = self.server(*own.flags("ps"))
        for offered, chosen in (("TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256", b"AES_128_GCM"),
                                ("TLS_AES_256_GCM_SHA384", b"AES_256_GCM"),
                                ("TLS_CHACHA20_POLY1305_SHA256", b"CHACHA20_POLY1305")):
            done = subprocess.run(["openssl", "s_client", "-connect", addr, "-alpn", "h2", "-cert",
                                   own.path("worker.pem"), "-key", own.path("worker.key"),
                                   "-CAfile", own.path("ca.pem"), "-ciphersuites", offered],
                                  input=b"", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertIn(b"New, TLSv1.3, Cipher is TLS_" + chosen, done.stdout)

    def test_log_of_strangers_is_limited(self):
        """The server writes few log lines about many unauthenticated clients, and still writes
        its other log lines."""
        ps, addr = self.server(*own.flags("ps"))
        host, port = addr.split(":")
        for _ in range(60):
            with socket.create_connection((host, int(port))) as s:
                s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                s.recv(1)  # an alert, or the end
        socket.create_connection((host, int(port))).close()  # like a probe of the port
        self.ctl(addr, *foreign.flags("worker", ca=own), "status", status=1)
        ps.wait_line(r"\(CN=worker\) is not signed by a CA")
        self.assertNotIn("did not continue the handshake", ps.output())
        self.assertLessEqual(ps.output().count("it does not speak TLS"), 12)

    def test_bad_server_certificates_refused(self):
        """Runs a server with these files, and compares the messages of a client and of the
        server."""
        own.make("ps", "expired_ps", harness.LOOPBACK, days=-1)
        own.make("ps", "elsewhere", "ps.example", "10.0.0.1")
        seen = (r"the client at \S+ did not continue the handshake after it received "
                "this server's certificate")
        cases = [
            (foreign.flags("ps"), r"\(CN=ps\) is not signed by a CA of .*own/ca\.pem[^$]*"
             "not reachable: the server's certificate is not signed by a CA of --tls_ca", seen),
            (own.flags("expired_ps"), r"\(CN=expired_ps\) has expired on 20[^$]*"
             "not reachable: the server's certificate has expired", seen),
            (own.flags("elsewhere"), r"the server at %s is refused: its certificate "
             r"\(CN=elsewhere\) does not name this host; make one[^$]*"
             "the server's certificate does not name that host" % re.escape(harness.LOOPBACK),
             seen),
            ([], "not reachable: the server there does not speak TLS: start it with --tls_cert",
             None),
        ]
        for flags, client, server in cases:
            with self.subTest(client):
                ps, addr = self.server(*flags)
                self.assertRegex(self.ctl(addr, *own.flags("admin"), "status", status=1),
                                 client)
                if server:
                    ps.wait_line(server)
                ps.stop()

    def test_server_with_worker_certificate_refused(self):
        """A program with a worker's certificate cannot replace a server."""
        own.make_special("posing", "URI:weir://role/worker,IP:" + harness.LOOPBACK,
                         usage="serverAuth,clientAuth")
        for name, why in (("worker", "is not made for a server"),
                          ("posing", "is for the role worker, but a server's certificate must be "
                           "for the role ps")):
            (port,) = harness.free_ports(1)
            addr = "%s:%d" % (harness.LOOPBACK, port)
            job = self.job(n_workers=1)
            ps = self.start_program("ps", *job.hosts(), *own.flags(name))
            ps.ends(USAGE, r"%s\.pem is for the role worker, not ps; use one with "
                    "URI:weir://role/ps" % name)
            posing = self.start("s_server", ["openssl", "s_server", "-accept", addr, "-alpn", "h2",
                                             "-www", "-cert", own.path(name + ".pem"), "-key",
                                             own.path(name + ".key")])
            posing.wait_line("ACCEPT")
            self.assertRegex(self.ctl(addr, *own.flags("admin"), "status", status=1), why)
            posing.stop(status=None)

    def test_roles_open_their_methods(self):
        """Each role may call only its methods. A health check needs no role."""
        import grpc
        own.make_special("nobody", "DNS:nobody")
        ps, addr = self.server(*own.flags("ps"))

        def code(name, path):
            read = [open(own.path(p), "rb").read() for p in ("ca.pem", name + ".key",
                                                             name + ".pem")]
            channel = harness.keep(grpc.secure_channel(addr, grpc.ssl_channel_credentials(*read)))
            try:
                channel.unary_unary(path)(b"", timeout=10 * harness.PATIENCE)
                return grpc.StatusCode.OK
            except grpc.RpcError as e:
                self.assertNotEqual(e.code(), grpc.StatusCode.UNAVAILABLE, e)
                return e.code()
            finally:
                channel.close()
        denied = grpc.StatusCode.PERMISSION_DENIED
        for name in ("ps", "worker", "admin", "nobody"):
            for method, role in METHODS.items():
                self.assertEqual(code(name, "/weir.v1." + method) == denied, name != role,
                                 (name, method))
            self.assertEqual(code(name, "/weir.v1.Weir/Status") == denied, name == "nobody", name)
            self.assertEqual(code(name, "/grpc.health.v1.Health/Check"), grpc.StatusCode.OK, name)
        ps.wait_line(r"/Command from ipv4:\S+ refused: Command is for the role admin; the caller's "
                     r"certificate \(CN=worker\) is for the role worker")

    def test_commands_need_admin_role(self):
        ps, addr = self.server(*own.flags("ps"))
        self.ctl(addr, *own.flags("worker"), "status")
        for name, why in (("worker", "role admin; the caller's certificate"), ("ps", "role ps")):
            self.assertIn(why, self.ctl(addr, *own.flags(name), "drain", "1", status=1))
        self.assertNotIn("role", self.ctl(addr, *own.flags("admin"), "drain", "1", status=1))

    def test_add_prints_needed_certificate_use(self):
        """`weirctl add` prints how to join a job, and also which use the new program's certificate
        must have."""
        job = self.job(n_workers=1, flags=[*TRAIN, "--train_steps=100000"])
        job.start_ps(0, *own.flags("ps"))
        job.start_worker(0, *own.flags("worker")).wait_line("step 2 done")
        for words, role in ((["worker"], "worker"), (["ps", "localhost:1"], "ps")):
            self.assertRegex(self.ctl(job.ps_hosts[0], *own.flags("admin"), "add", *words),
                             "the job uses TLS: add .* for the role %s\n" % role)
        joins = self.ctl(job.ps_hosts[0], *own.flags("admin"), "add", "worker").splitlines()[-1]
        second = self.start("worker:1", [*joins.split(), *own.flags("worker"), "--progress=lines"])
        second.wait_line("step")
        self.kill(second, *job.workers, *job.ps)

    def copy_of_own(self):
        names = certs.Certs(self.path("own"))
        shutil.copytree(own.folder, names.folder)
        return names

    def renew(self, names, role, *hosts):
        """Replaces the certificate of that role by another one."""
        names.make(role, "renewed", *hosts)
        for end in (".key", ".pem"):
            os.rename(names.path("renewed" + end), names.path(role + end))

    def relayed_job(self, names):
        """Returns (relay, server, worker) of a job in training; the worker has its certificate from
        `names`."""
        (port,) = harness.free_ports(1)
        relay = Relay((harness.LOOPBACK, port))
        self.addCleanup(relay.close)
        job = self.job(n_workers=1, flags=[*TRAIN, "--train_steps=1000000", "--shared_memory=off"])
        job.ps_hosts = [relay.address]
        ps = job.start_ps(0, *own.flags("ps"), "--bind=%s:%d" % (harness.LOOPBACK, port))
        worker = job.start_worker(0, *names.flags("worker"))
        worker.wait_line("step 2 done")
        return relay, ps, worker

    def test_new_certificates_used_without_restart(self):
        """Worker and server read new certificate files. Files that are not valid change nothing."""
        names = self.copy_of_own()
        ps, addr = self.server(*names.flags("ps"))
        names.make("worker", "worker", days=-1)
        job = self.job(n_workers=1, flags=TRAIN)
        job.ps_hosts = [addr]
        worker = job.start_worker(0, *names.flags("worker"))
        worker.wait_line(r"peers will refuse the certificate in \S+worker\.pem: it has expired")
        worker.wait_line(r"waiting for ps:0")
        harness.write_file(names.path("ps.pem"), "no certificate\n")
        self.ctl(addr, *own.flags("admin"), "status")
        ps.wait_line(r"files have changed and cannot be used: \S+ps\.pem holds no certificate in "
                     "PEM; the previous certificate stays in use")
        self.renew(names, "ps", harness.LOOPBACK)
        self.ctl(addr, *own.flags("admin"), "status")
        ps.wait_line(r"TLS: new certificate read from \S+ps\.pem: CN=renewed")
        names.make("worker", "worker")
        worker.wait_line(r"TLS: new certificate read from \S+worker\.pem")
        worker.wait()
        ps.wait()

    @unittest.skipIf(harness.SANITIZE, "a sanitizer's runtime must be the first library")
    def test_hung_certificate_file_blocks_no_client(self):
        """If the certificate's file system does not answer, the old certificate stays in use."""
        names = self.copy_of_own()
        env, hang = self.hangs()
        ps, addr = self.server(*names.flags("ps"), env=env)
        hang(names.path("ps.key"))
        for _ in range(3):
            self.ctl(addr, *own.flags("admin"), "status")
        ps.wait_line(re.escape(names.path("ps.key")) + " cannot be read: its file system has not "
                     "answered for 1 s; the previous certificate stays in use")
        self.renew(names, "ps", harness.LOOPBACK)
        hang(None)
        ps.wait_line(re.escape(names.path("ps.key")) + " can be read again")
        self.ctl(addr, *own.flags("admin"), "status")
        ps.wait_line(r"TLS: new certificate read from \S+ps\.pem: CN=renewed")

    def test_next_connection_uses_new_certificate(self):
        """A client whose connection was cut opens the next one with the new certificate, although
        the old one is still valid."""
        names = self.copy_of_own()
        relay, ps, worker = self.relayed_job(names)
        self.renew(names, "worker")
        relay.cut()
        worker.wait_line(r"TLS: new certificate read from \S+worker\.pem: CN=renewed")
        step = worker.global_step()
        worker.wait_line("global step: %d\\)" % (step + 20))
        self.kill(worker, ps)

    def test_altered_record_ends_connection_only(self):
        """An altered record ends its connection as if the link were cut. No program is refused
        because of it."""
        relay, ps, worker = self.relayed_job(own)
        # The record must arrive in the worker's connection: during the handshake of another one the
        # server would refuse the client.
        client = ps.wait_line(r"worker 0 joined from ipv4:(\S+)").group(1)
        relay.inject(b"\x17\x03\x03\x00\x20" + bytes(32), client)
        worker.wait_line("ps:0 .* (lost|again|back)")
        step = worker.global_step()
        worker.wait_line("global step: %d\\)" % (step + 20))
        for process in (worker, ps):
            self.assertNotIn("refuse", process.output())
            process.kill()

    def test_bad_own_files_refused_at_start(self):
        """A fault in a program's own files is reported at its start."""
        own.make("worker", "soon", days=3)
        own.make("worker", "past", days=-1)
        shutil.copy(own.path("worker.key"), own.path("open.key"))
        os.chmod(own.path("open.key"), 0o644)
        cert, key, ca = own.flags("worker")
        for flags, status, why in [
                ([cert, key], USAGE, "--tls_cert, --tls_key and --tls_ca go together; set all"),
                ([cert, key, "--tls_ca=/nowhere"], USAGE, "/nowhere cannot be read: No such file"),
                ([cert, own.flags("admin")[1], ca], USAGE,
                 r"the key in \S+admin.key is not that of the certificate in \S+worker.pem"),
                ([cert, cert.replace("cert", "key", 1), ca], USAGE, "holds no private key in PEM"),
                ([cert, key, key.replace("key", "ca", 1)], USAGE, "holds no certificate in PEM"),
                (own.flags("soon"), RETRY, r"soon\.pem expires in [23] days, on 20"),
                (own.flags("past"), RETRY, r"peers will refuse .*past\.pem: it has expired on 20"),
                (foreign.flags("worker", ca=own), RETRY, "peers will refuse .*not signed by a CA"),
                ([cert, "--tls_key=" + own.path("open.key"), ca], RETRY,
                 r"open\.key: other users may read this private key; chmod 600")]:
            with self.subTest(why):
                self.assertRegex(self.ctl("localhost:1", *flags, "status", status=status), why)


class Plain(Secured):
    def test_missing_encryption_warned_once(self):
        """Each program warns once if other hosts can reach an address that it uses. The addresses
        of this test belong to no host."""
        away = "192.0.2.1:2221,192.0.2.2:2221"
        line = "192.0.2.1:2221 is not a loopback address: traffic is "
        text = self.ctl(away, "--timeout_s=1", "status", status=RETRY)
        self.assertEqual(text.count(line + "neither encrypted nor authenticated; let only a "
                                    "trusted network or IPSec reach it, or start all programs "
                                    "with --tls_cert"), 1, text)
        self.assertEqual(text.count("is not a loopback address"), 1)
        token = certs.write_secret(self.path("token"), "0123456789abcdef\n")
        text = self.ctl(away, "--timeout_s=1", "--token_file=" + token, "status", status=RETRY)
        self.assertIn(line + "not encrypted: anyone who can read the traffic has the token", text)
        text = self.ctl(away, "--timeout_s=1", *own.flags("admin"), "status", status=RETRY)
        self.assertNotIn("loopback", text)
        ps, _ = self.server("--bind=0.0.0.0")
        ps.wait_line("0.0.0.0:.* is not a loopback address: traffic is neither encrypted")


class Tokens(Secured):
    def token_file(self, *lines):
        path = self.path("tokens-%d" % len(os.listdir(self.dir())))
        return certs.write_secret(path, "".join(line + "\n" for line in lines))

    def of(self, *roles):
        return "--token_file=" + self.token_file(*("%s %s" % (r, TOKENS[r]) for r in roles))

    def test_job_with_tokens_trains(self):
        """One secret for servers and workers, one for operators; also with certificates."""
        secret = "--token_file=" + self.token_file("0123456789abcdef")
        for tls in (False, True):
            job = self.job(n_ps=2, n_workers=1, flags=[*TRAIN, "--chunk_bytes=5120"])
            job.start_servers(secret, *(own.flags("ps") if tls else []))
            job.start_worker(0, secret, *(own.flags("worker") if tls else []))
            job.finish()

    def test_bad_tokens_refused(self):
        ps, addr = self.server(self.of("ps", "worker", "admin"))
        other = "--token_file=" + self.token_file("worker another-token-of-20")
        for flags, why in (([], "the caller shows no token; set its --token_file"),
                           ([other], "token differs from this server's; set the same token")):
            self.assertRegex(self.ctl(addr, *flags, "status", status=1), "refused.*" + why)
            ps.wait_line(r"/Status from ipv4:\S+ refused: .*" + why)
            job = self.job(n_workers=1, flags=TRAIN)
            job.ps_hosts = [addr]
            job.start_worker(0, *flags).ends(1, r"ps:0 \(\S+\) refuses this worker: .*" + why)
            ps.wait_line(r"/Join from ipv4:\S+ refused: .*" + why)
        self.assertNotIn("another-token", ps.output())

    def test_token_roles_open_their_methods(self):
        import grpc
        ps, addr = self.server(self.of("ps", "worker", "admin"))
        channel = harness.keep(grpc.insecure_channel(addr))

        def code(role, path):
            metadata = [("authorization", "Bearer " + TOKENS[role])] if role else []
            try:
                channel.unary_unary(path)(b"", timeout=10 * harness.PATIENCE, metadata=metadata)
                return grpc.StatusCode.OK
            except grpc.RpcError as e:
                return e.code()
        for method, needed in METHODS.items():
            for role in TOKENS:
                self.assertEqual(code(role, "/weir.v1." + method) ==
                                 grpc.StatusCode.PERMISSION_DENIED, role != needed, (role, method))
            self.assertEqual(code(None, "/weir.v1." + method),
                             grpc.StatusCode.UNAUTHENTICATED)
        self.assertEqual(code(None, "/grpc.health.v1.Health/Check"), grpc.StatusCode.OK)
        channel.close()
        self.assertIn("Command is for the role admin; the caller's token is for the role worker",
                      self.ctl(addr, self.of("worker"), "drain", "1", status=1))
        self.assertNotIn("token", self.ctl(addr, self.of("admin"), "drain", "1", status=1))
        self.assertIn("is for the role", self.ctl(addr, self.of("ps"), "stop", status=1))
        self.assertIn("accepted", self.ctl(addr, self.of("worker"), "stop"))
        ps.wait(30)

    def test_call_needs_token_and_certificate(self):
        """The token and the certificate of a call must both have the role: a good certificate does
        not replace the token."""
        ps, addr = self.server(*own.flags("ps"), self.of("ps", "worker", "admin"))
        for cert, token, why in (("admin", "worker", "the caller's token is for the role worker"),
                                 ("worker", "admin", r"certificate \(CN=worker\) is for the role"),
                                 ("admin", None, "the caller shows no token")):
            flags = own.flags(cert) + ([self.of(token)] if token else [])
            self.assertRegex(self.ctl(addr, *flags, "drain", "1", status=1), why)
        self.assertNotIn("role", self.ctl(addr, *own.flags("admin"), self.of("admin"), "drain",
                                          "1", status=1))

    def test_new_tokens_used_without_restart(self):
        path = self.token_file("0123456789abcdef")
        ps, addr = self.server("--token_file=" + path)
        old = "--token_file=" + self.token_file("0123456789abcdef")
        new = "--token_file=" + self.token_file("fedcba9876543210")
        self.ctl(addr, old, "status")
        certs.write_secret(path, "")
        self.ctl(addr, old, "status")
        ps.wait_line("has changed and cannot be used: has no token.*the previous tokens stay")
        certs.write_secret(path, "fedcba9876543210\n0123456789abcdef\n")
        for token in (old, new):
            self.ctl(addr, token, "status")
        ps.wait_line("new tokens read from")
        certs.write_secret(path, "fedcba9876543210\n")
        self.ctl(addr, new, "status")
        self.assertIn("token differs from this server's", self.ctl(addr, old, "status", status=1))

    @unittest.skipIf(harness.SANITIZE, "a sanitizer's runtime must be the first library")
    def test_hung_token_file_blocks_no_client(self):
        """If the token file's file system does not answer, the last good tokens stay in use, and a
        worker can join and train. A server that starts then reports that it waits."""
        path, env, hang = self.token_file("0123456789abcdef"), *self.hangs()
        old = "--token_file=" + self.token_file("0123456789abcdef")
        new = "--token_file=" + self.token_file("fedcba9876543210")
        job = self.job(n_workers=1, flags=TRAIN)
        ps = job.start_ps(0, "--token_file=" + path, "--serve", env=env)
        hang(path)
        for _ in range(3):
            self.ctl(job.ps_hosts[0], old, "status")
        ps.wait_line(re.escape(path) + " cannot be read: its file system has not answered for 1 s; "
                     "the previous tokens stay in use")
        job.start_worker(0, old).wait()
        certs.write_secret(path, "fedcba9876543210\n")
        self.assertIn("token differs from this server's",
                      self.ctl(job.ps_hosts[0], new, "status", status=1))
        starting = self.job(n_workers=1).start_ps(0, "--token_file=" + path, env=env, wait=False)
        starting.wait_line(re.escape(path) + " cannot be read: .*; waiting for it")
        hang(None)
        starting.wait_line("each call needs a token of " + re.escape(path))
        ps.wait_line(re.escape(path) + " can be read again")
        self.ctl(job.ps_hosts[0], new, "status")
        for process in (ps, starting):
            process.stop()

    def test_bad_token_file_refused(self):
        open_file = self.token_file("admin 0123456789abcdef")
        os.chmod(open_file, 0o644)
        for path, status, why in (
                (open_file, RETRY, "other users may read these tokens; chmod 600"),
                ("/nowhere", USAGE, "--token_file=/nowhere cannot be read: No such file"),
                (self.token_file("boss 0123456789abcdef"), USAGE, "line 1: the roles are not"),
                (self.token_file("short"), USAGE, "line 1: the token is shorter than 16")):
            self.assertIn(why, self.ctl("localhost:1", "--token_file=" + path, "status",
                                        status=status))
        job = self.job(n_workers=1)
        for program, role in (("ps", "ps"), ("worker", "worker")):
            p = self.start_program(program, *job.hosts(), self.of("admin"))
            p.ends(USAGE, "has no token for the role " + role)


@unittest.skipIf(NO_LOCALHOST, NO_LOCALHOST)
class Document(Secured):
    """docs/guide/security.md's commands literally, except for port and length of training."""

    def run_section(self, headline, n_lines):
        with open(harness.source("docs/guide/security.md"), encoding="utf-8") as f:
            section = f.read().split("\n## " + headline + "\n")[1].split("\n## ")[0]
        lines = re.findall(r"^    (\S.*)$", section, re.MULTILINE)
        self.assertEqual(len(lines), n_lines)
        (port,) = harness.free_ports(1, "127.0.0.1")
        path = harness.BIN + ":" + harness.SOURCE + ":" + os.environ["PATH"]
        env = dict(os.environ, PATH=path)
        os.symlink(harness.source("scripts"), self.path("scripts"))
        more = {"ps": ["--serve"], "worker": [*TRAIN, "--data_dir=" + self.data()]}
        started = []
        for line in lines:
            program = line.split()[0]
            line = line.replace(":2221", ":%d" % port)
            if program in more:
                argv = ["bash", "-c", " ".join(["exec", line, *more[program]])]
                started.append(self.start(program, argv, env=env, cwd=self.dir()))
                started[-1].wait_line("listening" if program == "ps" else "Training elapsed")
                continue
            done = harness.run(["bash", "-c", line], env=env, cwd=self.dir())
            self.assertEqual(done.returncode, 0, "%s: %s" % (line, done.stdout))
            self.assertNotRegex(done.stdout, "(?m)^[WE] ")
        started[1].wait()
        started[0].stop()
        for process in started:
            self.assertNotIn("chmod", process.output())

    def test_commands_for_tls_work(self):
        self.run_section("From nothing to a job with TLS", 6)

    def test_commands_for_tokens_work(self):
        self.run_section("Tokens", 5)


harness.main(__name__)
