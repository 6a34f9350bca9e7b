"""A cluster of real processes and the faults that strike it. Each process has a network namespace
of its own where the kernel allows that. The cluster starts a killed process again by the same
command, as a scheduler would, and also a process that exits with 138 ("retry me"). Any other exit
status but 0 is a failure, and so is a wait that outlasts the deadline. After a failure the logs of
every process and the stacks of its threads are kept."""
import glob
import heapq
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time

import ckpt_folder
import harness

RETRY = 138
GONE = ("done", "left", "absent")
BACK_AFTER_RETRY = 0.3  # seconds from an exit with RETRY to the restart, like a scheduler's
BAD_LINE = re.compile(r"Sanitizer|runtime error:|CHECK failed|Assertion")


class Node:
    """One place in the cluster, and the processes that have filled it one after the other."""

    def __init__(self, name, place):
        self.name, self.place = name, place  # place: number of the host in the network
        self.argv, self.enter = [], []
        self.lives = []
        self.state = "down"  # up, stopped, down, done, failed, left, or absent (it may join later)
        self.linked, self.one_way = True, None  # "in", "out": only that direction is cut
        self.leaving = False # this process was ordered to leave

    def process(self):
        return self.lives[-1]

    def start(self):
        self.lives.append(harness.Process("%s life %d" % (self.name, len(self.lives) + 1),
                                          self.enter + self.argv))
        self.state, self.leaving = "up", False


class Cluster:
    """Starts, strikes and watches the cluster in one thread. `timeline` is a heap of the events
    that are due. worker: a worker's program and flags."""

    def __init__(self, folder, n_ps, n_workers, network, ps_flags, worker, disk=None):
        self.folder, self.network, self.disk = folder, network, disk
        self.counts = {}     # number of faults by kind and target
        self.situations = {} # number of faults by the situation in which they struck
        self.skipped = {}
        self.timeline, self.n_events = [], 0
        self.events = []
        self.disk_is_faulty = self.disk_had_a_fault = self.has_damage = False
        self.other_samples = False  # a worker joined or left
        # The last server and the last worker start absent: they may join later.
        self.servers = [Node("ps:%d" % i, i) for i in range(n_ps + 1)]
        self.workers = [Node("worker:%d" % i, n_ps + 1 + i) for i in range(n_workers + 1)]
        self.spares = [self.servers[-1], self.workers[-1]]
        self.nodes = {n.name: n for n in self.servers + self.workers}
        if network:
            addresses = ["%s:2222" % network.address(n.place) for n in self.nodes.values()]
        else:
            addresses = ["%s:%d" % (harness.LOOPBACK, p)
                         for p in harness.free_ports(len(self.nodes))]
        self.joiner_address = addresses[n_ps]
        hosts = ["--ps_hosts=" + ",".join(addresses[:n_ps]),
                 "--worker_hosts=" + ",".join(addresses[n_ps + 1:-1])]
        join = ["--join", "--ps_hosts=" + addresses[0]]
        for i, n in enumerate(self.servers):
            place = ["--job_name=ps", "--task_index=%d" % i]
            n.argv = [harness.program("ps"), *(hosts + place if i < n_ps
                                               else join + ["--address=" + addresses[n_ps]]),
                      *(["--drain"] if i > 0 else []), *ps_flags]
        for i, n in enumerate(self.workers):
            place = ["--job_name=worker", "--task_index=%d" % i]
            n.argv = [*worker, *(hosts + place if i < n_workers else join),
                      "--summary_json=" + self.summary_path(i),
                      "--record_samples=" + self.samples_path(i)]
        for n in self.spares:
            n.state = "absent"
        if network:
            for n in self.nodes.values():
                n.enter = network.hosts[n.place].enter

    def summary_path(self, i):
        return os.path.join(self.folder, "summary-%d.json" % i)

    def samples_path(self, i):
        return os.path.join(self.folder, "samples-%d" % i)

    def note(self, text):
        self.events.append("%8.3f  %s" % (time.monotonic() - self.began, text))

    def at(self, seconds, what, *args):
        """Schedules a call of `what` in so many seconds."""
        self.n_events += 1
        heapq.heappush(self.timeline, (time.monotonic() + seconds, self.n_events, what, args))

    def count(self, what, where=None):
        where = self.counts if where is None else where
        where[what] = where.get(what, 0) + 1

    def skip(self, kind, why):
        self.count(kind, self.skipped)
        self.note("%s skipped: %s" % (kind, why))

    # Faults. Each function logs what it did, or why it could not.

    def kill(self, name, kind, back):
        """back: seconds until the restart, or None if the caller restarts the process."""
        n = self.nodes[name]
        if n.state not in ("up", "stopped"):
            self.skip(kind, "%s is %s" % (name, n.state))
            return False
        n.process().popen.kill()
        if n in self.servers:
            self.repair_disk()  # a process that waits for the disk cannot die
        n.process().wait(20, None)
        if n.process().status != -signal.SIGKILL:
            self.record_exit(n)  # the process ended before the signal arrived
            self.skip(kind, name + " had ended")
            return False
        n.state = "down"
        self.count("kill -9 of %s" % self.role(n))
        self.note("killed %s" % name)
        if back is not None:
            self.restart_later(n, back)
        return True

    def role(self, n):
        return "the coordinator" if n.name == "ps:0" else n.name.split(":")[0].replace(
            "ps", "another ps").replace("worker", "a worker")

    def restart_later(self, n, seconds, then=None):
        self.at(seconds, self.restart, n, then)

    def restart(self, n, then=None):
        if n.state == "down":
            n.start()
            self.note("started %s again" % n.name)
            if then:
                then()

    def strike(self, f):
        kind, name = f.kind, f.targets[0]
        getattr(self, "do_" + kind.replace("-", "_"))(f, name)

    def do_kill(self, f, name):
        if self.kill(name, f.kind, f.back) and f.kind != "kill":
            self.count(f.kind, self.situations)

    def do_kill_two(self, f, name):
        first = self.kill(name, f.kind, f.back)
        self.at(f.after, self.second_kill, f, first)

    def second_kill(self, f, first):
        if self.kill(f.targets[-1], f.kind, f.back) and first:
            self.count(f.kind, self.situations)

    def do_kill_saving(self, f, name):
        asked = self.nodes[name if self.nodes[name] in self.servers else "ps:0"]
        if asked.state == "up" and self.serves(asked):
            asked.process().popen.send_signal(signal.SIGUSR1)
            self.note("asked %s for a checkpoint" % asked.name)
        self.at(f.after, self.do_kill, f, name)

    def has_logged(self, n, text):
        return any(text in line for line in n.process().lines)

    def serves(self, n):
        """Returns whether the process is far enough to handle signals."""
        return self.has_logged(n, "listening")

    def do_kill_again(self, f, name):
        if self.kill(name, f.kind, None):
            self.restart_later(self.nodes[name], f.back,
                               lambda: self.at(f.after, self.do_kill, f, name))

    def do_kill_changing(self, f, name):
        if self.kill(name, f.kind, None):
            self.restart_later(self.nodes[name], f.back,
                               lambda: self.at(f.after, self.do_kill, f, f.targets[1]))

    def do_stop(self, f, name):
        n = self.nodes[name]
        if n.state != "up":
            self.skip(f.kind, "%s is %s" % (name, n.state))
            return
        n.process().popen.send_signal(signal.SIGSTOP)
        n.state = "stopped"
        self.note("stopped " + name)
        self.count("SIGSTOP of " + self.role(n))
        self.at(f.back, self.resume, n, n.process())

    def resume(self, n, process):
        if n.state == "stopped" and n.process() is process:
            process.popen.send_signal(signal.SIGCONT)
            n.state = "up"
            self.note("continued %s" % n.name)

    def do_cut(self, f, name):
        n = self.nodes[name]
        if not self.network or not n.linked:
            self.skip(f.kind, "no namespaces" if not self.network else name + " is cut off")
            return False
        self.network.link(n.place, False)
        n.linked = False
        self.note("cut %s off" % name)
        self.count("cut of %s's link" % self.role(n))
        self.at(f.back, self.link_again, n)
        return True

    def link_again(self, n, direction=None):
        if not n.linked:
            if direction:
                self.network.one_way(n.place, direction, False)
            else:
                self.network.link(n.place, True)
            n.linked, n.one_way = True, None
            self.note("the link of %s is back" % n.name)

    def do_cut_one_way(self, f, name):
        n, direction = self.nodes[name], f.targets[1]
        if not self.network or not n.linked:
            self.skip(f.kind, "no namespaces" if not self.network else name + " is cut off")
            return
        self.network.one_way(n.place, direction, True)
        n.linked, n.one_way = False, direction
        self.note("cut the direction '%s' of %s's link" % (direction, name))
        self.count("one-way cut of %s's link" % self.role(n))
        self.at(f.back, self.link_again, n, direction)

    # Members that join or leave for good.

    def do_join_worker(self, f, name):
        n = self.nodes[name]
        if n.state != "absent":
            self.skip(f.kind, "%s is %s" % (name, n.state))
            return
        n.start()
        self.other_samples |= n in self.workers
        self.note("started %s, to join" % name)
        self.count("join of " + self.role(n))

    do_join_server = do_join_worker

    def do_leave_worker(self, f, name):
        n = self.nodes[name]
        stay = [w for w in self.workers if w is not n and not w.leaving and w not in self.spares and
                w.state not in ("left", "absent")]
        if n.state != "up" or n.leaving or not stay or not self.has_logged(n, "training step"):
            self.skip(f.kind, "%s is %s" % (name, n.state if stay else "the last"))
            return
        self.order_to_leave(n)

    def do_drain(self, f, name):
        n = self.nodes[name]
        if n.state != "up" or n.leaving or not self.has_logged(n, "listening"):
            self.skip(f.kind, "%s is %s" % (name, n.state))
            return
        self.order_to_leave(n)

    def order_to_leave(self, n):
        n.process().popen.send_signal(signal.SIGTERM)
        n.leaving = True
        self.other_samples |= n in self.workers
        self.note("ordered %s to leave" % n.name)
        self.count("leave of " + self.role(n))

    # Faults of the disk.

    def do_disk_hang(self, f, _):
        self.disk_fault(f, "hangs", lambda: self.disk.hang())

    def do_disk_full(self, f, _):
        self.disk_fault(f, "is full", lambda: self.disk.fill_up())

    def do_damage(self, f, name):
        """Damages the newest checkpoint, once: a second damaged one could leave no readable
        checkpoint."""
        folder = os.path.join(self.folder, "ckpt")
        found = ckpt_folder.find(folder)
        whole = [f for f in found if f[1] == ".json"]
        why_not = ("the disk has a fault" if self.disk_is_faulty else # a write would hang, too
                   "another checkpoint is damaged" if self.has_damage else
                   "there is no older checkpoint" if len(whole) < 2 else "")
        if why_not:
            self.skip(f.kind, why_not)
            return
        step, _, term, _ = whole[-1]
        path, = [p for s, what, t, p in found
                 if (s, t) == (step, term) and what.startswith("-0-of-")]
        with open(path, "r+b") as part:
            part.seek(-1, os.SEEK_END)
            last = part.read(1)
            part.seek(-1, os.SEEK_END)
            part.write(bytes([last[0] ^ 1]))
        self.has_damage = True
        self.note("damaged " + path)
        if self.kill(name, f.kind, f.back):
            self.count(f.kind, self.situations)

    def disk_fault(self, f, what, act):
        if not self.disk or self.disk_is_faulty:
            self.skip(f.kind, "no disk" if not self.disk else "the disk has another fault")
            return
        act()
        self.disk_is_faulty = self.disk_had_a_fault = True
        self.note("the disk " + what)
        self.count("disk that " + what)
        self.at(f.back, self.repair_disk)

    def repair_disk(self):
        if self.disk_is_faulty:
            self.disk.repair()
            self.disk_is_faulty = False
            self.note("the disk works again")

    def do_cut_kill(self, f, name):
        if self.do_cut(f, name) and self.kill(name, f.kind, f.back):
            self.count(f.kind, self.situations)

    # Functions that watch the processes.

    def record_exit(self, n):
        """Records the exit of a process that the cluster did not kill."""
        status = n.process().wait(20, None)
        if status == 0:
            n.state = "left" if n.leaving else "done"
            self.note("%s %s" % (n.name, "left" if n.leaving else "ended"))
        elif status == RETRY and self.has_logged(n, "the job is done, but"):
            # A restart of this process alone is useless: a scheduler restarts the whole job, which
            # trains the lost steps again.
            n.state = "done"
            self.note("%s ended with %d: the job's last step is not saved" % (n.name, status))
        elif status == RETRY or (status == 128 + signal.SIGTERM and n.leaving):
            n.state = "down"
            self.note("%s ended with %d, to be started again" % (n.name, status))
            self.count("ends with %d" % RETRY)
            self.restart_later(n, BACK_AFTER_RETRY)
        else:
            n.state = "failed"
            raise harness.Failure("%s: exit status %d" % (n.process().name, status))

    def wait(self, until):
        """Waits for the next event, the next exit of a process, or `until`."""
        if self.timeline:
            until = min(until, self.timeline[0][0])
        alive = [n for n in self.nodes.values() if n.state in ("up", "stopped")]
        fds = {os.pidfd_open(n.process().popen.pid): n for n in alive}
        try:
            ready = select.select(list(fds), [], [], max(0, until - time.monotonic()))[0]
        finally:
            for fd in fds:
                os.close(fd)
        for fd in ready:
            self.record_exit(fds[fd])
        while self.timeline and self.timeline[0][0] <= time.monotonic():
            _, _, what, args = heapq.heappop(self.timeline)
            what(*args)

    def start(self):
        self.began = time.monotonic()
        for n in self.nodes.values():
            if n.state != "absent":
                n.start()

    def run(self, faults, deadline_seconds, grace=0):
        """Runs until every worker is done, then until every server is done. grace: if a worker
        still runs so many seconds after all servers are done, it missed the job's end; 0: no
        worker may miss it."""
        self.start()
        over = False
        end = self.began + deadline_seconds * harness.SLOWNESS
        seconds = 0
        for f in faults:
            seconds += f.gap
            self.at(seconds, self.strike, f)
        while any(n.state not in GONE for n in self.workers):
            if grace and all(n.state in GONE for n in self.servers if n not in self.spares):
                end, grace = min(end, time.monotonic() + grace), 0
                over = True
            if time.monotonic() > end and over:
                self.drop_late_members()
                break
            if time.monotonic() > end:
                raise harness.Failure("not done after %g s" % (end - self.began))
            self.wait(end)
        # No new fault strikes, but the cluster starts processes that are down again.
        self.timeline = [e for e in self.timeline if e[2] != self.strike and
                         e[2] not in (self.do_kill, self.second_kill)]
        heapq.heapify(self.timeline)
        end = time.monotonic() + 30 * harness.SLOWNESS
        while any(n.state not in GONE for n in self.servers):
            if all(n.state in GONE or n in self.spares for n in self.servers) and \
                    not self.has_joined():
                self.drop_late_members()
                break
            if time.monotonic() > end:
                raise harness.Failure("servers still run %g s after the last worker" %
                                      (30 * harness.SLOWNESS))
            self.wait(end)

    def has_joined(self):
        """Returns whether ps 0 has admitted the server that may join."""
        return any(re.search(r"\(%s\) joins at step" % re.escape(self.joiner_address), line)
                   for p in self.servers[0].lives for line in p.lines)

    def drop_late_members(self):
        """Kills the members that missed the end of the job: ps 0 had dropped them, or they were
        still joining. They would wait for the next job."""
        for n in [*self.workers, self.spares[0]]:
            if n.state in ("up", "stopped"):
                n.process().popen.kill()
                n.process().wait(20, None)
            if n.state not in GONE:
                self.note("%s missed the end" % n.name)
                self.count("%s missed the end" % n.name.split(":")[0], self.situations)
                n.state = "down"

    def summaries(self):
        """Returns [(worker, its summary)] of the workers that saw the job's end. A member of a job
        with tables that was started again after the end has no rows."""
        out = []
        for i, n in enumerate(self.workers):
            if n.state == "done" and not self.has_logged(n, "result over"):
                out.append((i, harness.read_json(self.summary_path(i))))
        return out

    def all_saw_the_end(self):
        """Returns whether every worker but the spare one saw the job's end or left before it."""
        return all(n.state in ("done", "left") for n in self.workers if n not in self.spares)

    def disk_kept_the_last(self):
        """Returns whether the disk had a fault during the last checkpoint, and ps 0 logged that."""
        return self.disk_had_a_fault and self.has_logged(self.servers[0], "given up")

    def bad_lines(self):
        return ["%s: %s" % (p.name, line) for n in self.nodes.values() for p in n.lives
                for line in p.lines if BAD_LINE.search(line)]

    def stop_all(self):
        self.repair_disk()
        for n in self.nodes.values():
            for p in n.lives:
                p._end()
            if self.network and not n.linked:
                self.link_again(n, n.one_way)

    def keep_logs(self, folder):
        """Writes the logs of all processes, the events, and the stacks of the processes that
        live."""
        os.makedirs(folder, exist_ok=True)
        stacks = [threading.Thread(target=self.stack, args=(n, folder))
                  for n in self.nodes.values() if n.state in ("up", "stopped")]
        for t in stacks:
            t.start()
        for t in stacks:
            t.join()
        harness.write_file(os.path.join(folder, "events"), "\n".join(self.events) + "\n")
        for n in self.nodes.values():
            with open(os.path.join(folder, n.name.replace(":", "-") + ".log"), "w",
                      encoding="utf-8") as f:
                for p in n.lives:
                    f.write("----- %s: %s\n%s\n----- status %s\n" %
                            (p.name, " ".join(p.argv), p.output(), p.popen.poll()))

    def stack(self, n, folder):
        pid = n.process().popen.pid
        out = ""
        if shutil.which("gdb"):
            try:
                out = subprocess.run(["gdb", "-p", str(pid), "-batch", "-nx", "-ex",
                                      "thread apply all bt 14"], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                     timeout=30).stdout
            except subprocess.TimeoutExpired:
                out = "gdb took too long\n"
        for path in sorted(glob.glob("/proc/%d/task/*/" % pid)) if not out else []:
            for what in ("comm", "wchan", "stack"):
                try:
                    out += "%s%s: %s\n" % (path, what, harness.read_text(path + what).strip())
                except OSError:
                    pass
        harness.write_file(os.path.join(folder, n.name.replace(":", "-") + ".stack"), out)

    def last_lines(self):
        return ["%s (%s): %s" % (n.name, n.state,
                                 n.process().lines[-1] if n.lives and n.process().lines else "-")
                for n in self.nodes.values()]
