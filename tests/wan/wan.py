"""A wide area network on one machine: regions in network namespaces, for tests and benchmarks.

    with wan.Wan(n_regions=2, rtt_ms=80, rate_mbit=100, ipsec={"mode": "tunnel"}) as net:
        subprocess.run([*net.regions[1].hosts[0].enter, "ping", net.address(0)])
        net.link(0, 1).cut()

Each region has hosts on a bridge, and a gateway. Each pair of regions has its own line, which
wan_link (link.c) emulates. Gateways forward in clear, or through tunnels that
scripts/ipsec/generate sets up, with strongSwan's ESP in user space. They run the same programs as
real gateways. A region behind NAT has one more namespace between its gateway and its lines.

    region i: hosts 10.(81+i).0.10, .11, ...; gateway 10.(81+i).0.1; public address 198.51.100.(i+1)

Nothing is left behind. A namespace ends with its holder, and the holder ends with this program.
Each gateway has its own processes, mounts and /run.
"""
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tests/python"))
import harness  # noqa: E402
import namespaces  # noqa: E402
from namespaces import Namespace, run  # noqa: E402

LINK = os.path.join(os.environ.get("WEIR_FAKES") or os.path.join(SOURCE, "build/tests"), "wan_link")
IPSEC = os.path.join(SOURCE, "scripts/ipsec")
PLUGINS = "/usr/lib/ipsec/plugins/libstrongswan-%s.so"
STRONGSWAN = (  # file that is needed, and Debian's package of it
    ("/usr/lib/ipsec/charon", "strongswan-charon"), ("/usr/sbin/swanctl", "strongswan-swanctl"),
    (PLUGINS % "kernel-libipsec", "libcharon-extra-plugins"),
    (PLUGINS % "openssl", "libstrongswan-standard-plugins"))
SECONDS = 30  # times harness.PATIENCE: longest wait for a part of a network


class Gateway(Namespace):
    """A namespace with its own processes, mounts and /run; the processes end with it."""
    HOLDER = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc",
              "sh", "-c", "mount -t tmpfs -o size=64m run /run && echo up; exec cat"]

    def __init__(self):
        super().__init__(self.HOLDER)
        with open("/proc/%d/task/%d/children" % (self.holder.pid, self.holder.pid),
                  encoding="ascii") as f:
            self.pid = int(f.read())
        self.enter = ["nsenter", "--target=%d" % self.pid, "--net", "--mount", "--pid"]

    def prefer(self, pid_file):
        """Raises the priority of the process in this file, because a real gateway shares no cores
        with workers. renice is for kernels that schedule by nice alone, autogroup for kernels that
        share cores between sessions."""
        run(*self.enter, "sh", "-c", "p=$(cat %s); renice -n -10 -p $p; cd /proc/$p; "
            "if [ -e autogroup ]; then echo -10 >autogroup; fi" % pid_file)

    def log(self):
        """Returns the log of charon."""
        with contextlib.suppress(FileNotFoundError), \
                open("/proc/%d/root/run/charon.log" % self.pid, encoding="utf-8") as f:
            return f.read()
        return ""


class Child:
    """A program that answers each line on its stdin by a line, and ends with its stdin."""

    def __init__(self, argv):
        self.argv = argv
        self.popen = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.got = b""
        try:
            if self.line() != "ready":
                raise harness.Failure("%s did not start" % argv[0])
        except BaseException:
            self.close()
            raise

    def line(self):
        deadline = time.monotonic() + SECONDS * harness.PATIENCE
        while b"\n" not in self.got:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.popen.stdout], [], [], left)[0]:
                raise harness.Failure("%s: no answer" % self.argv[0])
            part = os.read(self.popen.stdout.fileno(), 65536)
            if not part:
                raise harness.Failure("%s ended with %s" % (self.argv[0], self.popen.wait()))
            self.got += part
        line, self.got = self.got.split(b"\n", 1)
        return line.decode()

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        try:
            self.popen.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self.popen.stdout.close()


class Link(Child):
    """The line between two namespaces. The keywords of `line` are flags of wan_link."""

    def __init__(self, a, b, name_a, name_b, **line):
        super().__init__([LINK, "--a=/proc/%d/ns/net" % a.pid, "--b=/proc/%d/ns/net" % b.pid,
                          "--name_a=" + name_a, "--name_b=" + name_b,
                          *("--%s=%s" % item for item in line.items())])

    def stats(self, command="stats"):
        """Returns the figures per direction: "a_to_b", "b_to_a"."""
        self.popen.stdin.write(command.encode() + b"\n")
        self.popen.stdin.flush()
        return json.loads(self.line())

    def cut(self):
        return self.stats("cut")

    def heal(self):
        return self.stats("heal")


class Capture(Child):
    """Captures the packets of a device until stop(). pcap: file that receives them, too."""

    def __init__(self, space, device, subnets, pcap=None):
        super().__init__([*space.enter, sys.executable, "-B", os.path.join(IPSEC, "capture.py"),
                          device, ",".join(subnets), *([pcap] if pcap else [])])
        self.stopped = False

    def stop(self):
        """Returns {kind: {"packets", "bytes"}}, and "missed": number of missed packets."""
        self.popen.stdin.close()
        counts = json.loads(self.line())
        self.stopped = True
        return counts

    def close(self):
        if self.stopped:
            self.popen.wait()
            self.popen.stdout.close()
        else:
            super().close()


class Region:
    """The namespaces of a region. `edge` is the one with the lines: the gateway, or its NAT."""

    def __init__(self, index, n_hosts, nat, stack):
        self.index, self.name, self.nat = index, "region%d" % index, nat
        self.subnet = "10.%d.0.0/24" % (81 + index)
        self.inside = "10.%d.0.1" % (81 + index)
        self.public = "198.51.100.%d" % (index + 1)
        self.gateway = stack.enter_context(contextlib.closing(Gateway()))
        self.hosts = [stack.enter_context(contextlib.closing(Namespace())) for _ in range(n_hosts)]
        self.edge = self.gateway
        self._lan()
        if nat:
            self.edge = stack.enter_context(contextlib.closing(Namespace()))
            self._nat()

    def address(self, host):
        return "10.%d.0.%d" % (81 + self.index, 10 + host)

    def _lan(self):
        self.gateway.ip("link set lo up", "link add name lan type bridge",
                        "address add %s/24 dev lan" % self.inside, "link set lan up")
        self.gateway.sysctl("net/ipv4/ip_forward", 1)
        for i, host in enumerate(self.hosts):
            host.ip("link add name up0 type veth peer name port%d netns %d" % (i, self.gateway.pid))
            self.gateway.ip("link set port%d master lan" % i, "link set port%d up" % i)
            host.ip("link set lo up", "address add %s/24 dev up0" % self.address(i),
                    "link set up0 up", "route add default via %s" % self.inside)

    def _nat(self):
        """Translates the gateway's address to the public one."""
        self.edge.ip("link add name in type veth peer name out netns %d" % self.gateway.pid)
        self.gateway.ip("address add 192.168.1.2/24 dev out", "link set out up")
        self.edge.ip("link set lo up", "address add 192.168.1.1/24 dev in", "link set in up")
        self.edge.ip("route add %s via 192.168.1.2" % self.subnet)
        self.gateway.ip("route add default via 192.168.1.1")
        self.edge.sysctl("net/ipv4/ip_forward", 1)
        run(*self.edge.enter, "nft", "-f", "-", stdin="""
            table ip nat {
                chain postrouting {
                    type nat hook postrouting priority srcnat
                    oifname "wan*" masquerade
                }
            }""")


class Wan:
    """A network of regions. n_hosts: hosts of each region, as a number or a list. nat:
    numbers of the regions behind NAT. ipsec: None, or the settings of [network] in scripts/ipsec;
    its "mtu" is that of the line. clear: whether gateways forward in clear; None: only without
    ipsec. line: rtt_ms, jitter_ms, loss_percent, rate_mbit, queue_kb, mtu, seed."""

    def __init__(self, n_regions=2, n_hosts=1, nat=(), ipsec=None, clear=None, **line):
        self.line, self.ipsec, self.regions, self.links = line, ipsec, [], {}
        self.clear = ipsec is None if clear is None else clear
        n_hosts = n_hosts if isinstance(n_hosts, list) else [n_hosts] * n_regions
        with contextlib.ExitStack() as stack:
            for i in range(n_regions):
                self.regions.append(Region(i, n_hosts[i], i in nat, stack))
            for b in self.regions:
                for a in self.regions[:b.index]:
                    self._join(a, b, stack)
            self.folder = stack.enter_context(tempfile.TemporaryDirectory(
                prefix="weir-wan-%d-" % os.getpid()))
            if ipsec is not None:
                self._ipsec(stack)
            self.stack = stack.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.stack.close()

    def address(self, region, host=0):
        return self.regions[region].address(host)

    def link(self, a, b):
        return self.links[min(a, b), max(a, b)]

    def device(self, a, b):
        """Returns the name of the device of the line to b in region a's edge."""
        return "wan%d" % b if a != b else None

    def _join(self, a, b, stack):
        names = self.device(a.index, b.index), self.device(b.index, a.index)
        line = {**self.line, "seed": self.line.get("seed", 1) * 100 + 10 * a.index + b.index}
        self.links[a.index, b.index] = stack.enter_context(
            contextlib.closing(Link(a.edge, b.edge, *names, **line)))
        for me, peer, name in ((a, b, names[0]), (b, a, names[1])):
            me.edge.ip("address add %s peer %s/32 dev %s" % (me.public, peer.public, name),
                       "link set %s up" % name)
            if self.clear and not peer.nat:
                me.edge.ip("route add %s via %s dev %s" % (peer.subnet, peer.public, name))

    def _ipsec(self, stack):
        description = os.path.join(self.folder, "description.ini")
        esp = "userspace" if self.ipsec.get("mode", "tunnel") == "tunnel" else "kernel"
        network = {"esp": esp, "mtu": self.line.get("mtu", 1500), **self.ipsec}
        with open(description, "w", encoding="utf-8") as f:
            f.write("[network]\n" + "".join("%s = %s\n" % item for item in network.items()))
            for r in self.regions:
                f.write("[gateway %s]\naddress = %s\ninside = %s\nsubnets = %s\n" %
                        (r.name, "behind-nat" if r.nat else r.public, r.inside, r.subnet))
        run(os.path.join(IPSEC, "generate"), description, self.folder)
        for r in self.regions:
            # Runs before the namespaces end, so that peers are notified and files are complete.
            stack.callback(self.gateway_program, r.index, "down")
            self.gateway_program(r.index, "up")
            if network.get("mode") != "gre":
                r.gateway.prefer("/run/charon.pid")
        for r in self.regions:
            for peer in self.regions:
                if r is not peer and not (r.nat and peer.nat) and network.get("mode") != "gre":
                    self._await_tunnel(r, peer)

    def gateway_program(self, region, program, *args):
        """Runs a program that scripts/ipsec/generate wrote for this gateway. Returns its output."""
        r = self.regions[region]
        done = subprocess.run([*r.gateway.enter, os.path.join(self.folder, r.name, program), *args],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=SECONDS * 4)
        if done.returncode:
            raise harness.Failure("%s on %s: %s\n%s" % (program, r.name, done.stdout,
                                                        r.gateway.log()))
        return done.stdout

    def _await_tunnel(self, r, peer):
        def there():
            sas = subprocess.run([*r.gateway.enter, "env", "STRONGSWAN_CONF=/run/charon.conf",
                                  "swanctl", "--list-sas", "--raw", "--ike",
                                  "%s-%s" % (r.name, peer.name)], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True).stdout
            return "state=INSTALLED" in sas
        try:
            harness.until(there, "the tunnel from %s to %s" % (r.name, peer.name), SECONDS)
        except harness.Failure as e:
            raise harness.Failure("%s\n%s" % (e, r.gateway.log())) from None

    def counters(self, region):
        """Returns the kernel's counts on all lines of a region: "rx_bytes", "tx_packets", ..."""
        total = dict.fromkeys(("rx_bytes", "tx_bytes", "rx_packets", "tx_packets"), 0)
        edge = self.regions[region].edge
        for peer in range(len(self.regions)):
            if peer != region:
                stats = edge.device_statistics(self.device(region, peer))
                for side, what in (name.split("_") for name in total):
                    total["%s_%s" % (side, what)] += stats[side][what]
        return total

    def capture(self, region, peer, pcap=None):
        """Captures the packets on a region's line to another region."""
        return Capture(self.regions[region].edge, self.device(region, peer),
                       [r.subnet for r in self.regions], pcap)


def why_not(ipsec=False, nat=False, gateways=True):
    """Returns None, or the reason why this machine cannot run such a network. gateways: False if
    only a line is needed."""
    reason = namespaces.why_not(bridge=True)
    if reason:
        return reason
    if not os.path.exists("/dev/net/tun"):
        return "no /dev/net/tun: this kernel has no TUN devices"
    if not os.path.exists(LINK):
        return "%s is not built" % LINK
    try:
        if gateways:
            Gateway().close()
    except harness.Failure as e:
        return "no mount namespace can be made here (%s); if this is a chroot, run 'mount --bind " \
            "FOLDER FOLDER' before 'chroot FOLDER'" % e
    if (nat or ipsec) and not shutil.which("nft"):
        return "needs nft (Debian: nftables)"
    if nat or ipsec:
        reason = why_not_nft()
    if ipsec and not reason:
        missing = [package for path, package in STRONGSWAN if not os.path.exists(path)]
        reason = "needs strongSwan (Debian: %s)" % ", ".join(missing) if missing else None
    return reason


def why_not_nft():
    """Returns None, or the reason why nftables cannot do NAT and limit the MSS here."""
    with contextlib.closing(Namespace()) as space:
        try:
            run(*space.enter, "nft", "-f", "-", stdin="""
                table ip t {
                    chain c {
                        type nat hook postrouting priority srcnat
                        oifname "x" masquerade
                    }
                    chain d {
                        type filter hook postrouting priority mangle
                        tcp flags syn tcp option maxseg size set 1000
                    }
                }""")
        except harness.Failure as e:
            return "this kernel's nftables lack what is needed: %s" % e
    return None


def why_no_gre(ipsec=False):
    """Returns None, or why GRE is impossible here. ipsec: GRE over the kernel's own ESP."""
    reason = why_not(ipsec=ipsec)
    with contextlib.closing(Namespace()) as space:
        try:
            space.ip("link add g type gre local 198.51.100.1 remote 198.51.100.2")
        except harness.Failure:
            return reason or "this kernel has no GRE"
        try:
            if ipsec:
                space.ip("xfrm state add src 198.51.100.1 dst 198.51.100.2 proto esp spi 0x100 "
                         "mode transport aead rfc4106(gcm(aes)) 0x%s 128" % ("01" * 20))
        except harness.Failure:
            return reason or "this kernel has no ESP"
    return reason
