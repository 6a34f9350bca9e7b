"""Measures the processes of a run: CPU seconds, memory, and bytes of the loopback device."""
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PR_SET_CHILD_SUBREAPER = 36
SERVER = "127.0.0.2"  # the address of servers; programs of one role use 127.0.0.1


def parse_stat(text):
    """Returns (parent, CPU seconds, bytes of RSS) of the text of /proc/PID/stat."""
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), (int(fields[11]) + int(fields[12])) / TICK, int(fields[21]) * PAGE


def parse_unshared(text):
    """Returns the bytes of RssAnon and RssFile of the text of /proc/PID/status."""
    return 1024 * sum(map(int, re.findall(r"^Rss(?:Anon|File):\s+(\d+) kB", text, re.M)))


def own_segments(pid):
    """Returns the bytes of the segments of Weir (net/shm/segment.h) that a process has made. Only
    their owner keeps them open. None: it has made none."""
    sizes, folder = {}, "/proc/%d/fd" % pid
    try:
        for name in os.listdir(folder):
            at = os.path.join(folder, name)
            if os.readlink(at).startswith("/memfd:weir-payloads"):
                file = os.stat(at)
                sizes[file.st_ino] = 512 * file.st_blocks
    except OSError:
        pass  # it has just ended
    return sum(sizes.values()) if sizes else None


def own_memory(pid, rss):
    """Returns a process's memory, in which a page of a segment counts once, at the segment's
    owner."""
    segments = own_segments(pid)
    if segments is None:
        return rss
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as f:
            return parse_unshared(f.read()) + segments  # rss may be older than the segments
    except OSError:
        return rss


def processes():
    """Returns {pid: (parent, CPU seconds, bytes of RSS)} of all processes."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as f:
                    found[int(name)] = parse_stat(f.read())
            except (OSError, IndexError):
                pass  # it has just ended
    return found


def descendants(found, roots):
    """Returns {pid: nearest root} of the roots and of all processes below them."""
    below = {pid: pid for pid in roots if pid in found}
    for pid in found:
        path = []
        while pid in found and pid not in below and pid not in path:
            path.append(pid)
            pid = found[pid][0]
        below.update((p, below[pid]) for p in path if pid in below)
    return below


def command_line(pid):
    try:
        with open("/proc/%d/cmdline" % pid, encoding="utf-8", errors="replace") as f:
            return f.read().replace("\0", " ")
    except OSError:
        return ""


class Watch:
    """Looks at the processes of a run every `every` seconds, in a thread of its own.

    role_of: function from (root's role, command line) to the role of a process; "" is counted in
        no role. A role that begins with "client" is a client."""

    def __init__(self, role_of=None, every=0.05):
        self.role_of, self.every = role_of or (lambda role, _: role), every
        self.roots = {}  # pid: role
        self.cpu = {}  # pid: CPU seconds at the last look
        self.roles = {}  # pid: role
        self.peak = {}  # role: largest sum of memory in bytes; a shared page counts once
        self.peak_rss = {}  # role: largest sum of RSS in bytes
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

        # Programs that daemons leave behind become children of this program, and stay counted.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.roots[os.getpid()] = "starter"

    def add(self, role, pid):
        with self._lock:
            self.roots[pid] = role
            self.roles.pop(pid, None)  # look() may have seen it before it was added

    def look(self):
        found = processes()
        with self._lock:
            now, rss = {}, {}
            for pid, root in descendants(found, self.roots).items():
                if pid == os.getpid():
                    continue
                self.cpu[pid] = found[pid][1]
                if pid not in self.roles or self.roles[pid] is None:
                    self.roles[pid] = self.role_of(self.roots[root], command_line(pid))
                role = self.roles[pid]
                rss[role] = rss.get(role, 0) + found[pid][2]
                now[role] = now.get(role, 0) + own_memory(pid, found[pid][2])
            for peak, sizes in ((self.peak, now), (self.peak_rss, rss)):
                for role, size in sizes.items():
                    peak[role] = max(size, peak.get(role, 0))

    def _run(self):
        while not self._over.wait(self.every):
            self.look()

    def seconds(self):
        """Returns the CPU seconds of all processes so far, also of those that have ended."""
        self.look()
        with self._lock:
            return sum(self.cpu.values())

    def peaks(self):
        """Returns the peaks of the server and of the largest client, in bytes: first of memory in
        which a shared page counts once, then of RSS."""
        def both(peak):
            clients = [size for role, size in peak.items() if role.startswith("client")]
            return peak.get("server", 0), max(clients, default=0)
        with self._lock:
            return both(self.peak) + both(self.peak_rss)

    def end(self):
        """Kills all processes of the run that still exist."""
        for pid in descendants(processes(), self.roots):
            if pid != os.getpid():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass

    def close(self):
        self._over.set()
        self._thread.join()


class Bytes:
    """Counts the bytes of TCP on the loopback device by rules of nftables. They can be added in a
    network namespace of one's own only."""

    TO, FROM = "ip daddr " + SERVER, "ip saddr " + SERVER

    def __init__(self, to_server=TO, from_server=FROM):
        self.works = shutil.which("nft") is not None and os.environ.get("PEERS_NAMESPACE") == "1"
        if self.works:
            self._nft("flush ruleset\ntable ip peers {\n chain in {\n  type filter hook input "
                      "priority 0;\n  meta l4proto tcp %s counter comment \"to\"\n"
                      "  meta l4proto tcp %s counter comment \"from\"\n }\n}\n" % (
                          to_server, from_server))

    def _nft(self, rules):
        done = subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.works = done.returncode == 0

    def now(self):
        """Returns (bytes to the server, bytes from it) so far; None: they cannot be counted."""
        if not self.works:
            return None
        listed = subprocess.run(["nft", "-j", "list", "table", "ip", "peers"], text=True,
                                check=True, stdout=subprocess.PIPE).stdout
        return parse_counters(listed)


def parse_counters(text):
    """Returns (bytes to, bytes from) of the JSON that nft prints."""
    found = {}
    for entry in json.loads(text)["nftables"]:
        rule = entry.get("rule")
        if rule:
            found[rule["comment"]] = next(e["counter"]["bytes"] for e in rule["expr"]
                                          if "counter" in e)
    return found["to"], found["from"]


def in_namespace(argv):
    """Runs this program again in a network namespace of its own, where fixed ports are free and
    bytes can be counted. Returns if that does not work, or if it already runs there."""
    if os.environ.get("PEERS_NAMESPACE"):
        return
    enter = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    up = subprocess.run([*enter, "ip", "link", "set", "lo", "up"], check=False,
                        stderr=subprocess.DEVNULL) if shutil.which("unshare") else None
    if up is None or up.returncode != 0:
        return
    os.environ["PEERS_NAMESPACE"] = "1"
    os.execvp(enter[0], [*enter, "sh", "-c", "ip link set lo up; exec \"$@\"", "sh", *argv])


def wait_until(condition, seconds, every=0.02):
    """Returns the first true value of the condition; None after these seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(every)
    return None
