"""Packets on the wire: the test reads every packet of a job. The packets of a plain job contain the
first values and tokens in clear, and those of a job with TLS do not."""
# label: net
import ctypes
import math
import random
import socket
import struct
import threading
import unittest

import certs
import harness
import weights

ETH_P_ALL, SOL_SOCKET, SO_ATTACH_FILTER, SO_RCVBUFFORCE, PACKET_OUTGOING = 3, 1, 26, 33, 4
TOKEN = "0123456789-token-on-the-wire"
SAMPLE = 16  # bytes of the parameters that the test searches for at each place


def why_not():
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)).close()
    except PermissionError:
        return "a packet capture needs CAP_NET_RAW"
    return None


WHY_NOT = why_not()


def port_filter(port):
    """Returns a program for SO_ATTACH_FILTER, for a socket that receives packets from their IPv4
    header on: TCP from or to that port. Packets of other programs then use none of the socket's
    memory."""
    code = [(0x30, 0, 0, 9),        # A = the protocol
            (0x15, 0, 6, 6),        # TCP? otherwise 0 bytes
            (0xb1, 0, 0, 0),        # X = the header's length
            (0x48, 0, 0, 0),        # A = the source port
            (0x15, 2, 0, port),
            (0x48, 0, 0, 2),        # A = the destination port
            (0x15, 0, 1, port),
            (0x06, 0, 0, 0x40000),  # so many bytes of the packet
            (0x06, 0, 0, 0)]
    return b"".join(struct.pack("HBBI", *c) for c in code), len(code)


class Capture:
    """Captures the packets of one port on loopback, while it is open."""

    def __init__(self, port):
        self.port, self.data, self.over = port, [], False
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)  # nothing before bind
        self.socket.setsockopt(SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        program, n = port_filter(port)
        at = ctypes.create_string_buffer(program)
        self.socket.setsockopt(SOL_SOCKET, SO_ATTACH_FILTER,
                               struct.pack("HL", n, ctypes.addressof(at)))
        self.socket.bind(("lo", ETH_P_ALL))
        self.socket.settimeout(0.1)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        """Reads until no packet has arrived for a while after the end."""
        while True:
            try:
                packet, where = self.socket.recvfrom(1 << 17)
            except TimeoutError:
                if self.over:
                    return
                continue
            if where[2] == PACKET_OUTGOING or packet[0] >> 4 != 4 or packet[9] != 6:
                continue  # each packet appears as it leaves and as it arrives
            tcp = packet[4 * (packet[0] & 15):]
            if self.port in struct.unpack(">HH", tcp[:4]):
                self.data.append(tcp[4 * (tcp[12] >> 4):])

    def close(self):
        self.over = True
        self.thread.join()
        dropped = struct.unpack("II", self.socket.getsockopt(263, 6, 8))[1]  # PACKET_STATISTICS
        self.socket.close()
        return b"".join(self.data), dropped


def write_first_values(path):
    """Writes the parameters of the softmax model; returns their bytes."""
    rng = random.Random(11)
    weights.write(path, {
        "softmax/" + name: ("F32", shape, weights.random_values(rng, math.prod(shape), -0.01, 0.01))
        for name, shape in {"weights": (10, 784), "biases": (10,)}.items()})
    return b"".join(v.tobytes() for _, v in harness.read_safetensors(path).values())


@unittest.skipIf(WHY_NOT, WHY_NOT)
class OnTheWire(harness.Test):
    def run_job(self, values, ps_flags, worker_flags):
        """Returns all bytes that a job of two workers sends."""
        tokens = certs.write_secret(self.path("tokens"), TOKEN + "\n")
        job = self.job(n_workers=2, flags=[
            "--train_steps=3", "--batch_size=12", "--intra_op_threads=1", "--shared_memory=off",
            "--init=" + values, "--token_file=" + tokens])
        capture = Capture(int(job.ps_hosts[0].split(":")[1]))
        job.start(["--token_file=" + tokens, *ps_flags], worker_flags)
        job.finish()
        return capture.close()

    def test_parameters_and_tokens_only_in_plain_packets(self):
        values = self.path("values.safetensors")
        body = write_first_values(values)
        places = range(0, len(body) - SAMPLE, 1000)
        own = certs.for_job(self.path("certs"))
        plain, _ = self.run_job(values, [], [])
        secured, dropped = self.run_job(values, own.flags("ps"), own.flags("worker"))
        self.assertEqual(dropped, 0)  # no packet was missed
        # The job has sent the first values, gradients and versions.
        self.assertGreater(len(secured), 3 * len(body))
        found = sum(body[at:at + SAMPLE] in plain for at in places)
        self.assertGreater(found, 0.9 * len(places), "the capture of the plain job shows nothing")
        self.assertIn(TOKEN.encode(), plain)
        self.assertEqual([at for at in places if body[at:at + SAMPLE] in secured], [])
        for text in (TOKEN, "softmax", "weir.v1"):
            self.assertIn(text.encode(), plain)
            self.assertNotIn(text.encode(), secured)


harness.main(__name__)
