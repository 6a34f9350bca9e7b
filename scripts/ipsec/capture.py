"""Counts the packets that cross a device of a gateway, by kind. If PCAP is named, writes the
packets to this file. Needs only Linux and Python's standard library.

    capture.py DEVICE SUBNET,... [PCAP]      captures until its stdin ends; prints a line of JSON
"""
import ipaddress
import json
import select
import socket
import struct
import sys

ETH_P_ALL, ETH_P_IP = 3, 0x0800
SOL_PACKET, PACKET_STATISTICS = 263, 6
GRE, ESP, UDP = 47, 50, 17
IKE_PORT, NAT_PORT = 500, 4500
LONGEST = 65535
# "clear": packets from or to an address of SUBNET; "other": for example those of the gateway itself
KINDS = ("esp", "ike", "gre", "clear", "other")


def udp_kind(payload):
    """Returns the kind of a UDP packet. Four zeros instead of a security parameter index mean IKE
    (RFC 3948)."""
    if len(payload) < 9:
        return "other"
    ports = struct.unpack_from(">HH", payload)
    if NAT_PORT in ports:
        return "ike" if payload[8:12] == bytes(4) or payload[8:] == b"\xff" else "esp"
    return "ike" if IKE_PORT in ports else "other"


def kind(packet, subnets):
    """Returns the kind of an IPv4 packet."""
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return "other"
    protocol, fragment = packet[9], struct.unpack_from(">H", packet, 6)[0] & 0x1fff
    if any(int.from_bytes(packet[at:at + 4], "big") & s.netmask == s.network
           for at in (12, 16) for s in subnets):
        return "clear"
    if protocol == ESP:
        return "esp"
    if protocol == GRE:
        return "gre"
    if protocol == UDP and fragment == 0:
        return udp_kind(packet[(packet[0] & 15) * 4:])
    return "other"


class Subnet:
    def __init__(self, text):
        net = ipaddress.IPv4Network(text)
        self.netmask, self.network = int(net.netmask), int(net.network_address)


class Capture:
    """Captures from a device. run() returns once `until`, a descriptor, can be read."""

    def __init__(self, device, subnets, pcap=None):
        self.subnets = [Subnet(s) for s in subnets]
        self.counts = {k: {"packets": 0, "bytes": 0} for k in KINDS}
        self.n_missed = 0  # number of packets that this program was too slow to read
        self.pcap = pcap
        # DGRAM sockets receive packets without the link's own header, which not every device has.
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20)
        self.socket.bind((device, ETH_P_ALL))
        self.socket.setblocking(False)
        if pcap:
            pcap.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, LONGEST, 101))  # raw IP

    def _take(self):
        """Reads all waiting packets."""
        while True:
            try:
                packet, source = self.socket.recvfrom(LONGEST)
            except BlockingIOError:
                return
            if source[1] != ETH_P_IP:
                continue
            count = self.counts[kind(packet, self.subnets)]
            count["packets"] += 1
            count["bytes"] += len(packet)
            if self.pcap:
                self.pcap.write(struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet)

    def run(self, until):
        while until not in select.select([self.socket, until], [], [])[0]:
            self._take()
        self._take()
        statistics = self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        self.n_missed = struct.unpack("II", statistics)[1]
        self.socket.close()


def main():
    pcap = open(sys.argv[3], "wb") if len(sys.argv) > 3 else None
    capture = Capture(sys.argv[1], sys.argv[2].split(","), pcap)
    print("ready", flush=True)
    capture.run(sys.stdin.fileno())
    if pcap:
        pcap.close()
    print(json.dumps({**capture.counts, "missed": capture.n_missed}))


if __name__ == "__main__":
    main()
