#!/usr/bin/python3
"""Peers that abuse HTTP/2: unfinished messages, connections and calls without end, calls that are
reset at once, headers without end, garbage. The server's memory stays bounded, the server continues
to listen, and the workers of a running job are not affected."""
# label: cluster waits
import itertools
import os
import re
import resource
import select
import socket
import ssl
import struct
import threading

import certs
import harness
from test_backpressure import memory

MB = 1 << 20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
GUESTS = 128  # open calls of unknown peers: net/rpc/unauthenticated_calls.h
# A worker's call counts too until its message has arrived. It displaces a call of the flood.
LEFT_OPEN = range(GUESTS - 4, GUESTS + 1)


def frame(kind, flags, stream, payload=b""):
    return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) +
            payload)


def head(path):
    """Returns a call's HEADERS: literals, as HPACK writes them without a table."""
    out = b""
    for name, value in ((":method", "POST"), (":scheme", "http"), (":path", path),
                        (":authority", "weir"), ("content-type", "application/grpc"),
                        ("te", "trailers")):
        out += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    return out


def rapid_resets():
    """Sends calls that are reset at once, 50 at a time."""
    begin = head("/weir.v1.Weir/Join")
    for first in range(1, 200000, 100):
        yield b"".join(frame(HEADERS, 4, stream, begin) + frame(RST, 0, stream, b"\0\0\0\x08")
                       for stream in range(first, first + 100, 2))


def endless_header():
    """Sends one header, whose declared value has 2 GB, 16 KB at a time."""
    yield frame(HEADERS, 0, 1, b"\0\x03abc\x7f\x81\xff\xff\xff\x07")
    for _ in range(2000):
        yield frame(CONTINUATION, 0, 1, b"x" * 16384)


class Garbage:
    """Two threads, which connect, send 4 KB and close until the block ends."""

    def __init__(self, address, begin):
        host, port = address.split(":")
        self.address, self.begin = (host, int(port)), begin
        self.done = threading.Event()
        self.threads = [threading.Thread(target=self.flood) for _ in range(2)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_):
        self.done.set()
        for thread in self.threads:
            thread.join()

    def flood(self):
        raw = (self.begin + os.urandom(4096))[:4096]
        while not self.done.is_set():
            try:
                with socket.create_connection(self.address, 1) as s:
                    s.sendall(raw)
            except OSError:  # the server has closed it, or is busy
                pass


def is_connected_to(port):
    """Returns whether this host has a TCP connection, at any stage, to its own port."""
    with open("/proc/net/tcp", encoding="ascii") as f:
        return any(line.split()[2].endswith(":%04X" % port) for line in f)


class Peer:
    """One connection, which sends the test's frames and answers the frames that keep it alive."""

    def __init__(self, test, address, polite=True, source="127.0.0.1", wrap=None):
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), 10, (source, 0))
        if wrap:
            self.socket = wrap(self.socket)
        test.addCleanup(self.socket.close)
        self.polite = polite  # whether it follows the server's settings
        self.received, self.window, self.initial = b"", {0: 65535}, 65535
        self.ended, self.open = set(), []
        self.send(PREFACE + frame(SETTINGS, 0, 0))

    def send(self, raw):
        self.socket.settimeout(10 * harness.PATIENCE)
        self.socket.sendall(raw)

    def push(self, raw):
        """Sends raw bytes. Returns False if the server accepts no more of them."""
        self.socket.settimeout(harness.PATIENCE)
        try:
            self.socket.sendall(raw)
        except OSError:  # the server does not read, or has closed the connection
            return False
        return True

    def call(self, path):
        stream = 2 * len(self.window) - 1
        self.window[stream] = self.initial
        self.open.append(stream)
        self.send(frame(HEADERS, 4, stream, head(path)))
        return stream

    def receive(self, wait=0.0):
        """Returns the frames that have arrived, or False if the connection is closed."""
        while select.select([self.socket], [], [], wait)[0]:
            wait = 0.0
            try:
                raw = self.socket.recv(1 << 16)
            except ConnectionError:
                raw = b""
            if not raw:
                return False
            self.received += raw
            while len(self.received) >= 9:
                n = int.from_bytes(self.received[:3], "big")
                if len(self.received) < 9 + n:
                    break
                kind, flags, stream = struct.unpack(">BBI", self.received[3:9])
                self.note(kind, flags, stream & 0x7fffffff, self.received[9:9 + n])
                self.received = self.received[9 + n:]
        return True

    def note(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & 1 and self.polite:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[at:at + 6])
                if key == 4:
                    for s in self.window:
                        self.window[s] += (value - self.initial) * (s > 0)
                    self.initial = value
            self.send(frame(SETTINGS, 1, 0))
        elif kind == PING and not flags & 1:
            self.send(frame(PING, 1, 0, payload))
        elif kind == WINDOW:
            self.window[stream] = self.window.get(stream, 0) + struct.unpack(">I", payload)[0]
        elif kind == RST or (kind == HEADERS and flags & 1):
            self.ended.add(stream)
            if stream in self.open:
                self.open.remove(stream)

    def data(self, stream, payload):
        """Sends as much of the payload as the windows allow; returns its length."""
        n = min(len(payload), self.window[0], self.window[stream], 16384)
        if n <= 0 or stream in self.ended:
            return 0
        self.send(frame(DATA, 0, stream, payload[:n]))
        self.window[0] -= n
        self.window[stream] -= n
        return n


class Flood(harness.Test):
    def long_job(self, ps_flags=(), worker_flags=()):
        job = self.job(flags=["--batch_size=20", "--train_steps=100000000", "--seed=3",
                              "--log_every=10", "--fault_push_delay_ms=2"])
        job.start(ps_flags, worker_flags)
        job.workers[0].wait_line("training step 10 done")
        return job

    def wait_steps(self, job, n):
        """Waits until the job has trained so many steps more."""
        step = int(re.findall(r"training step (\d+) done", job.workers[0].output())[-1])
        job.workers[0].wait_line("training step %d done" % (step + n))

    def callers(self, job, path, polite=True):
        """Returns four peers, each with 50 calls of this path."""
        peers = [Peer(self, job.ps_hosts[0], polite) for _ in range(4)]
        for peer in peers:
            peer.receive(1)
            for _ in range(50):
                peer.call(path)
        return peers

    def finish(self, job):
        """Checks that the job continues, and that no member of it was cut off."""
        self.wait_steps(job, 50)
        for worker in job.workers:
            self.assertNotRegex(worker.output(), "connection to .* lost")
        self.kill(*job.workers, *job.ps)

    def hold(self, peers, n_bytes):
        """Sends a message of 8 MiB in each call of these peers, up to n_bytes in all."""
        sent = {}
        chunk = bytes(16384)
        for peer in peers:
            for stream in peer.open:
                peer.data(stream, b"\0" + struct.pack(">I", 8 * MB))
                sent[peer, stream] = 0
        moved = 1
        while moved:
            moved = 0
            for peer in peers:
                self.assertTrue(peer.receive(0.2 / len(peers)), "the connection is closed")
                for stream in list(peer.open):
                    if sent[peer, stream] < n_bytes:
                        n = peer.data(stream, chunk)
                        sent[peer, stream] += n
                        moved += n

    def await_ends(self, peers):
        """Waits until so many calls have ended that all remaining ones may stay."""
        def few():
            for peer in peers:
                self.assertTrue(peer.receive(), "the connection is closed")
            return sum(len(peer.open) for peer in peers) <= GUESTS
        harness.until(few, "at most %d calls are open" % GUESTS)

    def flood(self, path, polite=True):
        """The server ends the oldest of 200 calls that hold half a message."""
        job = self.long_job()
        before = memory(job.ps[0], "VmRSS")
        peers = self.callers(job, path, polite)
        self.hold(peers, MB)
        self.await_ends(peers)
        grown = memory(job.ps[0], "VmRSS") - before
        n_open = sum(len(peer.open) for peer in peers)
        self.assertIn(n_open, LEFT_OPEN)
        if not harness.SANITIZE:
            self.assertLess(grown, (GUESTS + 32) * MB)
        job.ps[0].wait_line("more than %d calls are open that are unfinished" % GUESTS)
        self.finish(job)

    def test_flood_displaces_calls_of_its_own_host_only(self):
        """A call of another host survives, though it is older."""
        job = self.long_job()
        honest = Peer(self, job.ps_hosts[0], source="127.0.0.2")
        honest.receive(1)
        call = honest.call("/weir.v1.Weir/Join")
        self.hold([honest], MB)
        peers = self.callers(job, "/weir.v1.Weir/Join")
        self.hold(peers, 1024)
        job.ps[0].wait_line("more than %d calls are open that are unfinished" % GUESTS)
        self.assertTrue(honest.receive(0.2))
        self.assertEqual(honest.open, [call])
        self.finish(job)

    def test_unfinished_requests_ended(self):
        self.flood("/weir.v1.Weir/Join")

    def test_unfinished_frames_ended(self):
        self.flood("/weir.v1.Weir/Exchange")

    def test_limits_hold_without_acknowledged_settings(self):
        """The limits also hold for a client that never acknowledges them."""
        self.flood("/weir.v1.Weir/Command", polite=False)

    def test_excess_watches_ended(self):
        """The server also ends calls that watch for ever, if there are more than the limit."""
        job = self.long_job()
        peer = Peer(self, job.ps_hosts[0])
        peer.receive(1)
        for _ in range(200):
            stream = peer.call("/grpc.health.v1.Health/Watch")
            peer.send(frame(DATA, 1, stream, bytes(5)))
        self.await_ends([peer])
        self.assertIn(len(peer.open), LEFT_OPEN)
        self.finish(job)

    def attack(self, sends, line, flags=((), ()), connect=Peer):
        """Two peers send until the server accepts no more. Returns the job, which continues."""
        job = self.long_job(*flags)
        before = memory(job.ps[0], "VmRSS")
        peers = [connect(self, job.ps_hosts[0]) for _ in range(2)]
        for n, raws in enumerate(zip(sends(), sends())):
            peers = [p for p, raw in zip(peers, raws) if p.push(raw)]
            if not peers:
                break
        self.assertEqual(peers, [], "the server reads on after %d parts" % n)
        job.ps[0].wait_line(r"the client at 127\.0\.0\.1:\d+ is cut off: %s" % line)
        self.assertEqual(len(re.findall("is cut off", job.ps[0].output())), 1)
        if not harness.SANITIZE:
            self.assertLess(memory(job.ps[0], "VmHWM") - before, 64 * MB)
        return job

    def test_rapid_resets_cut_off(self):
        self.finish(self.attack(rapid_resets, "it reset more than 100 calls in a second"))

    def garbage(self, begin, flags=((), ())):
        """Training continues during the flood, and a client of another host is served."""
        job = self.long_job(*flags)
        with Garbage(job.ps_hosts[0], begin):
            job.ps[0].wait_line(r"the host of the client at 127\.0\.0\.1:\d+ floods this server: "
                                "more than 100 of its connections in a second ended without a call")
            self.wait_steps(job, 500)
            if not flags[0]:
                honest = Peer(self, job.ps_hosts[0], source="127.0.0.2")
                call = honest.call("/weir.v1.Weir/NoSuchMethod")
                harness.until(lambda: honest.receive(0.1) and call in honest.ended, "the call ends")
        self.assertEqual(job.ps[0].output().count("floods this server"), 1)
        self.finish(job)

    def test_garbage_before_the_preface_does_no_harm(self):
        self.garbage(b"")

    def test_garbage_after_the_preface_does_no_harm(self):
        self.garbage(PREFACE)

    def test_connections_closed_before_a_call_do_no_harm(self):
        self.garbage(PREFACE + frame(SETTINGS, 0, 0))

    def test_garbage_instead_of_tls_does_no_harm(self):
        own = certs.for_job(self.path("certs"))
        for begin in (b"", b"\x16\x03\x01\x0f\xfb"):  # no TLS; the head of a ClientHello
            with self.subTest(begin):
                self.garbage(begin, (own.flags("ps"), own.flags("worker")))

    def test_http_1_client_named_and_closed(self):
        """A client that speaks HTTP/1 is named, and its connection closed."""
        job = self.long_job()
        host, port = job.ps_hosts[0].split(":")
        with socket.create_connection((host, int(port)), 10) as s:
            s.sendall(b"GET / HTTP/1.1\r\n\r\n")
            s.settimeout(10 * harness.PATIENCE)
            try:
                while s.recv(4096):
                    pass
            except ConnectionResetError:
                pass
        job.ps[0].wait_line(r"the client at 127\.0\.0\.1:\d+ is cut off: it does not speak HTTP/2")
        self.finish(job)

    def test_endless_headers_cut_off(self):
        line = "it sent a header of more than 64 KB or 16 frames"
        self.finish(self.attack(endless_header, line))

    def test_connection_of_cut_off_client_closed(self):
        """The server closes the connection of a client that it cut off, even if the client does
        nothing more, and a connection that the client closes."""
        job = self.long_job()
        held, left = Peer(self, job.ps_hosts[0]), Peer(self, job.ps_hosts[0])
        port = left.socket.getsockname()[1]
        for peer in (held, left):
            peer.push(b"".join(itertools.islice(endless_header(), 6)))
        job.ps[0].wait_line("is cut off")
        left.socket.close()
        harness.until(lambda: not is_connected_to(port), "the server closes its connections")
        harness.until(lambda: not held.receive(1), "the connection is closed", 60)
        self.finish(job)

    def test_calls_above_connection_limit_refused(self):
        """A client without a limit makes more calls than the server allows on one connection."""
        job = self.long_job()
        peer = Peer(self, job.ps_hosts[0], polite=False)
        begin = head("/grpc.health.v1.Health/Watch")
        peer.push(b"".join(frame(HEADERS, 4, stream, begin) for stream in range(1, 2000, 2)))
        job.ps[0].wait_line("is cut off: it opened more than 512 calls at once")
        self.finish(job)

    def test_attacks_over_tls_cut_off(self):
        """A client with a certificate of the job's CA makes both attacks over TLS."""
        own = certs.for_job(self.path("certs"))
        context = ssl.create_default_context(cafile=own.path("ca.pem"))
        context.check_hostname = False
        context.load_cert_chain(own.path("worker.pem"), own.path("worker.key"))
        context.set_alpn_protocols(["h2"])

        def connect(test, address):
            return Peer(test, address, wrap=context.wrap_socket)
        for sends, line in ((rapid_resets, "it reset more than 100 calls in a second"),
                            (endless_header, "it sent a header of more than 64 KB")):
            with self.subTest(line):
                flags = own.flags("ps"), own.flags("worker")
                self.finish(self.attack(sends, line, flags, connect))

    def test_excess_connections_do_not_stop_listening(self):
        """If there are more connections than a process may have open files, the server continues to
        listen."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        job = self.job(flags=["--batch_size=20", "--train_steps=30", "--seed=3"])
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, limits[1]))
        try:
            job.start_ps()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        peers = [Peer(self, job.ps_hosts[0]) for _ in range(200)]
        job.ps[0].wait_line(r"a connection is refused: 96 descriptors are in use; a higher limit")
        closed = [peer for peer in peers if not peer.receive(2)]
        self.assertIn(len(closed), range(100, 200))
        self.assertLess(len(os.listdir("/proc/%d/fd" % job.ps[0].popen.pid)), 128)
        for peer in peers:
            peer.socket.close()
        job.start_workers()
        job.finish()


harness.main(__name__)
