#!/usr/bin/python3
"""Names of servers that do not resolve yet: a waiting process asks again every few seconds. It
finds the server when the record of the name exists, or has another address. Some names have more
than one address. The tests run in a network and mount namespace with a resolver of their own."""
# label: net long
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

import harness

NAME = "ps-0.job.weir.test"
ADDRESSES = ("127.0.0.1", "127.0.0.2")
RESOLV = os.path.realpath("/etc/resolv.conf")
INSIDE = "WEIR_TEST_NAMES_INSIDE"
UNSHARE = ["unshare", "--net", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
# gRPC's own pauses begin with 1 s and grow by a factor of 1.6: after FAILURES failures each lasts
# 20 s or more, and a busy machine never shortens them. It may lengthen Weir's own pauses, so the
# test requires only one that is shorter than SHORT_S.
FAILURES, SHORT_S = 8, 10


def why_not():
    if os.environ.get(INSIDE):
        return None
    for tool in ("unshare", "ip", "mount"):
        if not shutil.which(tool):
            return "needs %s (util-linux, iproute2)" % tool
    if not os.path.exists(RESOLV):
        return "no /etc/resolv.conf to put another one in front of"
    done = harness.capture([*UNSHARE, "true"])
    return "no namespaces can be made here: " + done.stderr.strip() if done.returncode else None


class Resolver:
    """Answers questions for NAME by UDP: no such name, until `exists` is set."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        # asked: times of the questions
        self.exists, self.asked, self.addresses = False, [], ADDRESSES[:1]
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            query, address = self.socket.recvfrom(512)
            if query == b"end":
                return
            end = query.index(b"\0", 12) + 5
            is_a = query[end - 4:end - 2] == b"\0\1"
            with self.changed:
                if is_a:
                    self.asked.append(time.monotonic())
                exists = self.exists
                self.changed.notify_all()
            answers = [b"\xc0\x0c\0\1\0\1" + struct.pack(">IH", 5, 4) + socket.inet_aton(a)
                       for a in self.addresses if exists and is_a]
            head = query[:2] + struct.pack(">5H", 0x8580 | (0 if exists else 3), 1, len(answers),
                                           0, 0)
            self.socket.sendto(head + query[12:end] + b"".join(answers), address)

    def is_asked_again(self):
        """Returns whether the program asks again after many failures, sooner than gRPC alone would.
        Questions that follow each other within 0.5 s belong to one attempt."""
        times = [t for t, before in zip(self.asked, [0, *self.asked]) if t - before > 0.5]
        return any(b - a < SHORT_S for a, b in zip(times[FAILURES - 1:], times[FAILURES:]))

    def close(self):
        self.socket.sendto(b"end", self.socket.getsockname())
        self.thread.join()
        self.socket.close()


WHY_NOT = why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Names(harness.Test):
    def setUp(self):
        super().setUp()
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        own = self.write("resolv.conf", "nameserver 127.0.0.1\n")
        subprocess.run(["mount", "--bind", own, RESOLV], check=True)
        self.addCleanup(subprocess.run, ["umount", RESOLV], check=True)
        self.resolver = Resolver()
        self.addCleanup(self.resolver.close)

    def make_job(self, n_ps=1):
        job = self.job(n_ps=n_ps, n_workers=1, flags=["--train_steps=5"])
        ports = harness.free_ports(n_ps, "127.0.0.1")
        job.ps_hosts = ["%s:%d" % (NAME, port) for port in ports]
        return job

    def wait_failures(self):
        with self.resolver.changed:
            self.assertTrue(self.resolver.changed.wait_for(self.resolver.is_asked_again,
                                                           60 * harness.PATIENCE),
                            "asked at %s s" % self.resolver.asked)
            self.resolver.exists = True

    def test_worker_finds_late_record(self):
        job = self.make_job()
        job.start_worker()
        self.wait_failures()
        job.start_ps()
        job.finish()

    def test_members_find_moved_record(self):
        """The host of ps:0 is lost for good, and another host has its name now: living members find
        it there (docs/guide/failures.md)."""
        self.resolver.exists = True
        job = self.job(n_ps=2, n_workers=2, model="lenet5", flags=[
            "--batch_size=12", "--train_steps=40", "--chunk_bytes=32768", "--log_every=1"])
        job.ps_hosts[0] = "%s:%d" % (NAME, harness.free_ports(1, ADDRESSES[0])[0])
        job.hold(30)
        ckpt = ["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=8"]
        job.start(ckpt)
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        job.ps[0].kill()
        self.resolver.addresses = ADDRESSES[1:]
        job.start_ps(0, *ckpt)
        job.gate.open()
        job.ps[0].wait_line("resumes from step")
        job.finish()

    def listen_in_part(self, *hold):
        self.resolver.addresses, self.resolver.exists = ADDRESSES, True
        job = self.make_job()
        for address in hold:
            holder = socket.create_server((address, int(job.ps_hosts[0].split(":")[1])))
            self.addCleanup(holder.close)
        ps = job.start_ps(wait=False)
        ps.wait_line("is in use, by a program that may be ending")
        return ps

    def test_server_listens_on_one_of_two_addresses(self):
        ps = self.listen_in_part(ADDRESSES[1])
        ps.wait_line(r"W .* listening on 127\.0\.0\.1, not on 127\.0\.0\.2 \(Address already in")
        ps.stop()

    def test_server_without_free_address_ends(self):
        ps = self.listen_in_part(*ADDRESSES)
        ps.ends(138, "E .* address in use", 30)


if __name__ == "__main__":
    if not WHY_NOT and not os.environ.get(INSIDE):
        os.environ[INSIDE] = "1"
        os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, *sys.argv])
    harness.main()
