"""Makes the schedule of the faults, their targets and their times, by a pure function of the seed
and the cluster's shape.

A schedule is a list of faults. `gap` is the time from the beginning of the previous fault, which
may still last, to the beginning of this one. `back` is the time from a process' death to its
restart. All times are in seconds."""
import collections
import random

# Effect of each kind on its targets.
KINDS = {
    "kill": "kill -9 of a process, started again",
    "kill-two": "kill -9 of two processes at once, or the second shortly after the first",
    "kill-saving": "kill -9 while a checkpoint is being written",
    "kill-again": "kill -9, and again as soon as it is back",
    "kill-changing": "kill -9 of a process while the cluster admits a killed one again",
    "stop": "SIGSTOP, and SIGCONT later",
    "cut": "the link of a process is down for a while",
    "cut-kill": "kill -9 of a process whose link is down, started again when the link is back",
    "cut-one-way": "nothing that a process sends arrives for a while, or nothing sent to it",
    "join-worker": "an additional worker joins; this and leave-worker change each step's samples",
    "join-server": "an additional server joins",
    "leave-worker": "SIGTERM to a worker, which leaves for good",
    "drain": "SIGTERM to a server but the coordinator: it hands on its chunks and leaves for good",
    "disk-hang": "the disk of the checkpoints hangs for a while",
    "disk-full": "the disk of the checkpoints is full for a while",
    "damage": "a byte of the newest checkpoint changes, if there is an older one; then kill -9 "
              "of a server",
}
OTHER_SAMPLES = ("join-worker", "leave-worker")
# Seconds: longer than gRPC's keepalive at clients (20 s), or also than that at servers (30 s).
LONG_STOP = (21, 34)

Fault = collections.namedtuple("Fault", "gap kind targets after back")


class Shape:
    """The limits of a schedule: names of processes, kinds, and how long a process may be away."""

    def __init__(self, n_ps, n_workers, kinds, long_stops=False, late=0):
        self.servers = ["ps:%d" % i for i in range(n_ps)]
        self.workers = ["worker:%d" % i for i in range(n_workers)]
        self.kinds, self.long_stops = kinds, long_stops
        self.spare = {"join-worker": "worker:%d" % n_workers, "join-server": "ps:%d" % n_ps}
        # Seconds for which some processes are away, longer than --worker_timeout; 0: none are.
        self.late = late


def away(rng):
    """Returns for how many seconds a process is gone: short times are more frequent."""
    return round(rng.choice((rng.uniform(0, 0.2), rng.uniform(0.2, 1), rng.uniform(1, 2.5))), 2)


def pick(rng, shape):
    """Chooses servers and workers equally often, and the coordinator as often as all other
    servers."""
    if rng.random() < 0.5:
        return rng.choice(shape.workers)
    followers = shape.servers[1:]
    return rng.choice(followers) if followers and rng.random() < 0.5 else shape.servers[0]


def other(rng, shape, target):
    while True:
        name = pick(rng, shape)
        if name != target:
            return name


def fault(rng, shape, kind, gap):
    target = pick(rng, shape)
    after, back = 0, away(rng)
    if shape.late and target in shape.workers and rng.random() < 0.5:
        back = shape.late
    targets = [target]
    if kind in ("kill-two", "kill-changing"):
        targets.append(other(rng, shape, target))
        after = round(rng.choice((0, rng.uniform(0, 0.1), rng.uniform(0.1, 0.6))), 3)
    elif kind == "kill-saving":
        after = round(rng.choice((rng.uniform(0, 0.02), rng.uniform(0.02, 0.3))), 4)
    elif kind == "kill-again":
        after = round(rng.choice((rng.uniform(0, 0.1), rng.uniform(0.1, 0.5))), 3)
    elif kind == "cut-one-way":
        targets.append(rng.choice(("in", "out")))
    elif kind in shape.spare:
        targets = [shape.spare[kind]]
    elif kind == "leave-worker":
        targets = [rng.choice(shape.workers)]
    elif kind == "drain":
        targets = [rng.choice([*shape.servers[1:], shape.spare["join-server"]])]
    elif kind == "damage":
        targets = [rng.choice(shape.servers)]
    elif kind in ("disk-hang", "disk-full"):
        back = round(rng.uniform(0.1, 6), 2)
    elif kind == "stop" and shape.long_stops and rng.random() < 0.5:
        back = rng.choice(LONG_STOP)
    return Fault(gap, kind, targets, after, back)


def make(seed, shape):
    """Returns the faults of a seed. If an impossible kind is omitted, the times of the other faults
    stay the same."""
    rng = random.Random("weir chaos %d" % seed)
    # Workers join and leave in one seed of three only: in the other seeds bits can be compared.
    everything = [k for k in sorted(KINDS) if seed % 3 == 0 or k not in OTHER_SAMPLES]
    faults, gap_before = [], 0
    # In one seed of four the faults begin while the cluster is still starting.
    gap = round(rng.uniform(0.02, 0.6), 2) if rng.random() < 0.25 else round(
        rng.uniform(1, 2.5), 2)
    for _ in range(rng.randint(5, 9)):
        kind = rng.choice(everything)
        own = random.Random(rng.random())
        if kind in shape.kinds:
            faults.append(fault(own, shape, kind, round(gap_before + gap, 2)))
            gap_before = 0
        else:
            gap_before += gap
        gap = round(rng.choice((rng.uniform(0, 0.3), rng.uniform(0.3, 2.5))), 2)
    return faults


def text(f):
    """Returns a fault as one line of text."""
    t = " and ".join(f.targets) if f.kind == "kill-two" and not f.after else f.targets[0]
    words = {
        "kill": "kill %s, back after %g s" % (t, f.back),
        "kill-two": "kill %s, back after %g s" % (t, f.back),
        "kill-saving": "ask %s for a checkpoint, kill it %g s later, back after %g s" %
                       (t, f.after, f.back),
        "kill-again": "kill %s, back after %g s, kill it again %g s later" % (t, f.back, f.after),
        "kill-changing": "kill %s, back after %g s, kill %s %g s later" %
                         (t, f.back, f.targets[-1], f.after),
        "stop": "stop %s for %g s" % (t, f.back),
        "cut": "cut %s off for %g s" % (t, f.back),
        "cut-kill": "cut %s off and kill it, back after %g s" % (t, f.back),
        "cut-one-way": "cut the direction '%s' of %s's link for %g s" % (f.targets[-1], t, f.back),
        "join-worker": "%s joins" % t,
        "join-server": "%s joins" % t,
        "leave-worker": "%s leaves" % t,
        "drain": "%s hands on its chunks and leaves" % t,
        "disk-hang": "the disk hangs for %g s" % f.back,
        "disk-full": "the disk is full for %g s" % f.back,
        "damage": "the newest checkpoint is damaged, kill %s, back after %g s" % (t, f.back),
    }[f.kind]
    if f.kind == "kill-two" and f.after:
        words = "kill %s, kill %s %g s later, back after %g s" % (t, f.targets[1], f.after, f.back)
    return "+%.2f s  %s" % (f.gap, words)
