#!/usr/bin/python3
"""Simulates one Weir job in sync mode by discrete events: the time of a step with W workers, S
servers, links of a given rate, and given costs of the programs (measured by bench/scale).

The simulation goes frame by frame (one chunk or several, as net/rpc/send_queue.h makes them):

  worker  computes (a constant, jitter, a straggler), then pushes all chunks in order; the step ends
          when all new versions are in. CPU: checksum and send of a push, receipt of a version.
  link    Each host has one link each way. A link transmits whole frames in FIFO order. A frame's
          first byte is forwarded at once; its last byte arrives when the slower of its two links
          has transmitted it. Real links share their rate among flows. FIFO keeps a link equally
          busy, so the last frame, which ends a step, arrives at the same time. FIFO needs one event
          for each frame; shared rates would have to be computed again whenever a flow begins or
          ends. The network has unbounded buffers.
  server  receives a whole frame and checks it. If a contribution is the next in member order, the
          server adds it, and all contributions that waited for it; otherwise it copies the
          contribution. After the last contribution to a chunk it makes one update and one checksum,
          and then answers each member, in member order, chunk by chunk. Chunks are balanced over
          servers as by net/wire/chunks.h.
  CPU     Each host has a pool of cores, or all hosts share one pool (all programs on one machine).
          Tasks wait in one FIFO queue and are not interrupted. Tasks of one side of a connection
          run one after the other, as in gRPC.

The simulation has no packet loss, no slow start of TCP, and no locks of chunks. The measured costs
include the cost of threads that wake each other, and of cache misses (see `crowd` in Costs).

Some queues need no events: a worker on its own host has one core for sending and one for receiving,
and each receives its tasks in order from one source, so the times can be computed directly. Five
events remain for each frame that goes up and chunk that goes down: two at the server's downlink and
CPU queue, two at the end of the server's CPU tasks, one at the worker's downlink.

    bench/simulate.py --costs=FILE --workers=1000 --servers=100 --gbit=25 --model_bytes=13100000
"""
import argparse
import collections
import heapq
import itertools
import json
import random
import statistics

DEFAULT_CHUNK_BYTES, PACK_BYTES = 1 << 20, 64 << 10  # see net/wire/chunks.h
GATHER_BYTES, FRAME_BYTES, FRAME_PIECES = 128 << 10, 1 << 20, 512  # see net/rpc/send_queue.h


class Costs:
    """CPU seconds of the programs.

    bytes_in, bytes_out: for each byte in this direction.
    crowd: in addition for each byte of either direction, if a host has many connections. A core's
        caches then hold data of other connections, and fewer bytes of a connection are handled at a
        time. The cost is half of `crowd` if there are crowd_half connections besides the first one.
    chunk: for each chunk, in and out together.
    stream: for each step and connection, in and out together.
    add, copy, update, crc: for each byte of these loops of a server; bytes_in includes add."""
    KEYS = ("bytes_in", "bytes_out", "crowd", "chunk", "stream")

    def __init__(self, server=None, worker=None, loops=None, crowd_half=1):
        self.server = dict(dict.fromkeys(self.KEYS, 0.0), **(server or {}))
        self.worker = dict(dict.fromkeys(self.KEYS, 0.0), **(worker or {}))
        self.loops = dict(dict.fromkeys(("add", "copy", "update", "crc"), 0.0), **(loops or {}))
        self.crowd_half = crowd_half

    def as_dict(self):
        return {"server": self.server, "worker": self.worker, "loops": self.loops,
                "crowd_half": self.crowd_half}

    def crowd_share(self, connections):
        """Returns the share of `crowd` that the bytes of a host with n connections cost."""
        return (connections - 1) / (connections - 1 + self.crowd_half)

    def task(self, side, way, n_bytes, first, share):
        """Returns the seconds for one chunk in one direction. first: whether it is the first chunk
        of its stream in this step. share: result of crowd_share()."""
        c = self.server if side == "server" else self.worker
        return ((c["bytes_" + way] + c["crowd"] * share) * n_bytes + c["chunk"] / 2 +
                (c["stream"] / 2 if first else 0))


def chunk_table(model_bytes, chunk_bytes=DEFAULT_CHUNK_BYTES, tensors=1):
    """Returns the sizes of a model's chunks, by the rules of chunks_create() and of the synthetic
    workers."""
    each = max(1, model_bytes // 4 // tensors) * 4
    packed = min(chunk_bytes, PACK_BYTES) // each  # number of whole tensors that share a chunk
    if packed > 1:
        full, rest = divmod(tensors, packed)
        return [packed * each] * full + ([rest * each] if rest else [])
    return [min(chunk_bytes, each - at) for at in range(0, each, chunk_bytes)] * tensors


def shard(chunks, n_servers):
    """Returns the server of each chunk, by the rule of chunks_shard(): in order of falling size, a
    chunk is assigned to the server with the fewest bytes so far."""
    server = [0] * len(chunks)
    load = [(0, s) for s in range(n_servers)]
    for c in sorted(range(len(chunks)), key=lambda c: (-chunks[c], c)):
        n, s = load[0]
        server[c] = s
        heapq.heapreplace(load, (n + chunks[c], s))
    return server


def make_frames(chunks, server):
    """Returns the frames as tuples of chunks. Small chunks share a frame. The first frame to a
    server is sent as soon as it has GATHER_BYTES; later frames have up to FRAME_BYTES."""
    frames, later, open_frames = [], set(), {}
    for c, s in enumerate(server):
        frame = open_frames.setdefault(s, [])
        most = FRAME_BYTES if s in later else GATHER_BYTES
        if frame and (sum(chunks[k] for k in frame) + chunks[c] > most or
                      len(frame) == FRAME_PIECES):
            frames.append(tuple(frame))
            later.add(s)
            frame = open_frames[s] = []
        frame.append(c)
    return sorted(frames + [tuple(f) for f in open_frames.values() if f])


DEFAULTS = {
    "workers": 1, "servers": 1, "chunks": None, "model_bytes": 1 << 20,
    "chunk_bytes": DEFAULT_CHUNK_BYTES, "tensors": 1,
    "gbit": None,          # rate of each link; None: no limit
    "server_gbit": None,   # rate of the servers' links, if different
    "latency_s": 0.0,      # one way, first byte to first byte
    "server_cores": 2,     # cores that a server uses: its --inter_op_threads
    "shared_cores": None,  # all programs on one machine with so many cores
    "slowdown": 1.0,       # factor of the time of each CPU task, if other programs use cores
    "compute_s": 0.0, "jitter_s": 0.0, "straggler_s": 0.0,
    "steps": 4, "seed": 1,
}
(COMPUTED, TASK_DONE, VERSION_MADE, AT_SERVER_LINK, AT_SERVER, AT_WORKER_LINK, AT_WORKER,
 STEP_DONE) = range(8)
PUSH, TAKE, SEND, GET = range(4)


class Pool:
    """A pool of cores, and the tasks that wait for a core."""

    def __init__(self, cores):
        self.cores = self.idle = cores
        self.ready = collections.deque()
        self.busy_s = 0.0


class Simulation:
    def __init__(self, costs, **spec):
        unknown = set(spec) - set(DEFAULTS)
        if unknown:
            raise ValueError("unknown settings: %s" % ", ".join(sorted(unknown)))
        self.p = p = dict(DEFAULTS, **spec)
        self.W, self.S = p["workers"], p["servers"]
        self.chunks = p["chunks"] or chunk_table(p["model_bytes"], p["chunk_bytes"], p["tensors"])
        self.server_of = shard(self.chunks, self.S)
        self.frames = make_frames(self.chunks, self.server_of)
        self.frame_bytes = {f: sum(self.chunks[c] for c in f) for f in self.frames}
        self.random = random.Random(p["seed"])

        def rate(gbit):
            return gbit * 1e9 / 8 if gbit else None

        self.worker_rate = rate(p["gbit"])
        self.server_rate = rate(p["server_gbit"]) or self.worker_rate
        self.worker_rate = self.worker_rate or self.server_rate
        self.latency = p["latency_s"]
        self._set_costs(costs)
        self.shared = Pool(p["shared_cores"]) if p["shared_cores"] else None
        self.pools = [self.shared or Pool(p["server_cores"]) for _ in range(self.S)]
        self.events, self.number = [], itertools.count()
        self.lane_busy, self.lane_waiting = set(), {}
        # Times from which each link is free.
        self.worker_up, self.server_up = [0.0] * self.W, [0.0] * self.S
        self.worker_down, self.server_down = [0.0] * self.W, [0.0] * self.S
        self.receiver = [0.0] * self.W
        n = len(self.chunks)
        self.next_member, self.counted = [0] * n, [0] * n
        self.parked = [set() for _ in range(n)]
        self.left, self.step = [0] * self.W, [0] * self.W
        self.step_start = [0.0] * self.W
        self.step_seconds = []                                  # duration of each worker's steps
        self.ends = [[] for _ in range(p["steps"])]             # times at which workers ended it
        self.longest_compute = [0.0] * p["steps"]
        self.handlers = [self.computed, self.task_done, self.version_made, self.at_server_link,
                         self.at_server, self.at_worker_link, self.at_worker, self.step_done]
        self.effects = [self.pushed, None, self.sent, self.got]

    def _set_costs(self, costs):
        """Computes the seconds of each kind of task for each chunk."""
        slow, n = self.p["slowdown"], len(self.chunks)
        seen, first = set(), []
        for s in self.server_of:
            first.append(s not in seen)
            seen.add(s)
        used = len(seen)  # servers that own a chunk
        if self.p["shared_cores"]:
            worker_share = server_share = costs.crowd_share(self.W * used)
        else:
            worker_share, server_share = costs.crowd_share(used), costs.crowd_share(self.W)

        def make(side, way, share):
            return [slow * costs.task(side, way, self.chunks[c], first[c], share)
                    for c in range(n)]

        self.cost_push, self.cost_get = (make("worker", way, worker_share) for way in
                                         ("out", "in"))
        self.cost_take, self.cost_send = (make("server", way, server_share) for way in
                                          ("in", "out"))
        loops = {key: slow * v for key, v in costs.loops.items()}
        self.cost_add = [loops["add"] * b for b in self.chunks]
        self.cost_copy = [loops["copy"] * b for b in self.chunks]
        self.cost_update = [(loops["update"] + loops["crc"]) * b for b in self.chunks]

    # ---- cores ----

    def submit(self, now, pool, lane, task):
        """Queues a task: (pool, lane, kind, worker, chunk or frame, seconds). A lane is one side of
        a connection, whose tasks run one after the other."""
        if lane in self.lane_busy:
            self.lane_waiting.setdefault(lane, collections.deque()).append(task)
            return
        self.lane_busy.add(lane)
        if pool.idle:
            pool.idle -= 1
            self.start(now, task)
        else:
            pool.ready.append(task)

    def start(self, now, task):
        kind, w, frame, seconds = task[2:]
        if kind == TAKE:
            for c in frame:
                # A contribution that is not the next in member order is copied now, and added
                # later.
                if w != self.next_member[c]:
                    seconds += self.cost_copy[c] - self.cost_add[c]
                    self.parked[c].add(w)
        task[0].busy_s += seconds
        heapq.heappush(self.events, (now + seconds, next(self.number), TASK_DONE, task, None))

    def release(self, now, pool, lane):
        waiting = self.lane_waiting.get(lane)
        if waiting:
            pool.ready.append(waiting.popleft())
            if not waiting:
                del self.lane_waiting[lane]
        else:
            self.lane_busy.discard(lane)
        if pool.ready:
            self.start(now, pool.ready.popleft())
        else:
            pool.idle += 1

    def task_done(self, now, task, _):
        pool, lane, kind, w, c, _seconds = task
        if kind == TAKE:
            self.taken(now, task, w, c)
            return
        self.release(now, pool, lane)
        self.effects[kind](now, w, c)

    def at(self, time, kind, a, b):
        heapq.heappush(self.events, (time, next(self.number), kind, a, b))

    # ---- worker ----

    def start_step(self, now, w):
        p, seconds = self.p, self.p["compute_s"]
        if p["jitter_s"]:
            seconds += self.random.expovariate(1 / p["jitter_s"])
        if w == 0:
            seconds += p["straggler_s"]
        self.longest_compute[self.step[w]] = max(self.longest_compute[self.step[w]], seconds)
        self.step_start[w], self.left[w] = now, len(self.chunks)
        self.at(now + seconds, COMPUTED, w, None)

    def computed(self, now, w, _):
        for frame in self.frames:
            seconds = sum(self.cost_push[c] for c in frame)
            if self.shared:
                lane = (GET, w, self.server_of[frame[0]])
                self.submit(now, self.shared, lane, (self.shared, lane, PUSH, w, frame, seconds))
            else:
                now += seconds
                self.pushed(now, w, frame)

    def pushed(self, now, w, frame):
        if self.worker_rate:
            start = max(now, self.worker_up[w])
            self.worker_up[w] = start + self.frame_bytes[frame] / self.worker_rate
            self.at(start + self.latency, AT_SERVER_LINK, w, frame)
        else:
            self.at(now + self.latency, AT_SERVER, w, frame)

    def at_worker_link(self, now, w, c):
        n = self.chunks[c]
        if self.worker_rate:
            free = max(now, self.worker_down[w]) + n / self.worker_rate
            self.worker_down[w] = free
            now = max(free, now + n / self.server_rate)
        if self.shared:
            self.at(now, AT_WORKER, w, c)
            return
        self.receiver[w] = max(now, self.receiver[w]) + self.cost_get[c]
        self.left[w] -= 1
        if self.left[w] == 0:
            self.at(self.receiver[w], STEP_DONE, w, None)

    def at_worker(self, now, w, c):
        lane = (GET, w, self.server_of[c])
        self.submit(now, self.shared, lane, (self.shared, lane, GET, w, c, self.cost_get[c]))

    def got(self, now, w, _):
        self.left[w] -= 1
        if self.left[w] == 0:
            self.step_done(now, w, None)

    def step_done(self, now, w, _):
        step = self.step[w]
        self.ends[step].append(now)
        self.step_seconds.append((step, now - self.step_start[w]))
        self.step[w] += 1
        if self.step[w] < self.p["steps"]:
            self.start_step(now, w)

    # ---- server ----

    def at_server_link(self, now, w, frame):
        s, n = self.server_of[frame[0]], self.frame_bytes[frame]
        free = max(now, self.server_down[s]) + n / self.server_rate
        self.server_down[s] = free
        self.at(max(free, now + n / self.worker_rate), AT_SERVER, w, frame)

    def at_server(self, now, w, frame):
        s = self.server_of[frame[0]]
        lane, pool = (TAKE, w, s), self.pools[s]
        seconds = sum(self.cost_take[c] for c in frame)
        self.submit(now, pool, lane, (pool, lane, TAKE, w, frame, seconds))

    def taken(self, now, task, w, frame):
        """Handles a frame that the server has received: adds contributions that waited for those in
        the frame, and updates chunks whose contributions are complete."""
        seconds, full = 0.0, []
        for c in frame:
            self.counted[c] += 1
            if w == self.next_member[c]:
                self.parked[c].discard(w)
                n = self.next_member[c] + 1
                while n in self.parked[c]:
                    self.parked[c].discard(n)
                    seconds += self.cost_add[c]
                    n += 1
                self.next_member[c] = n
            # The last contribution triggers the update, and first the sums of all that still wait.
            if self.counted[c] == self.W:
                seconds += self.cost_add[c] * len(self.parked[c]) + self.cost_update[c]
                self.parked[c].clear()
                self.next_member[c] = self.counted[c] = 0
                full.append(c)
        task[0].busy_s += seconds
        self.at(now + seconds, VERSION_MADE, task, full)

    def version_made(self, now, task, full):
        pool, lane = task[:2]
        self.release(now, pool, lane)
        for c in full:
            s = self.server_of[c]
            for w in range(self.W):
                lane = (TAKE, w, s)
                self.submit(now, pool, lane, (pool, lane, SEND, w, c, self.cost_send[c]))

    def sent(self, now, w, c):
        s = self.server_of[c]
        if self.server_rate:
            start = max(now, self.server_up[s])
            self.server_up[s] = start + self.chunks[c] / self.server_rate
            now = start
        self.at(now + self.latency, AT_WORKER_LINK, w, c)

    # ---- the whole ----

    def run(self):
        for w in range(self.W):
            self.start_step(0.0, w)
        events, handlers, pop, n_events = self.events, self.handlers, heapq.heappop, 0
        while events:
            now, _, kind, a, b = pop(events)
            handlers[kind](now, a, b)
            n_events += 1
        if any(len(e) != self.W for e in self.ends):
            raise RuntimeError("the simulation stopped before all workers had ended all steps")
        return self.result(n_events)

    def result(self, n_events):
        ends = [max(e) for e in self.ends]
        n = len(ends)
        step_s = (ends[-1] - ends[0]) / (n - 1) if n > 1 else ends[0]
        late = sorted(s for step, s in self.step_seconds if step > 0 or n == 1)
        use = self.utilisation(step_s, ends[-1] / n)
        name = max(use, key=use.get)
        return {"step_s": step_s, "steps_s": 1 / step_s, "p50_s": late[len(late) // 2],
                "p99_s": late[min(len(late) - 1, int(0.99 * len(late)))], "use": use,
                "bottleneck": name, "events": n_events,
                "gb_s": 2 * self.W * sum(self.chunks) / step_s * 1e-9}

    def utilisation(self, step_s, mean_step_s):
        """Returns, for each kind of resource, the share of a step in which the busiest one
        works."""
        model = sum(self.chunks)
        load = [0] * self.S
        for c, s in enumerate(self.server_of):
            load[s] += self.chunks[c] * self.W
        compute = statistics.mean(self.longest_compute[1:] or self.longest_compute)
        uneven = self.p["jitter_s"] or self.p["straggler_s"]
        use = {"straggler" if uneven else "compute": compute / step_s}
        if self.worker_rate:
            use["worker link"] = model / self.worker_rate / step_s
            use["server link"] = max(load) / self.server_rate / step_s
        if self.shared:
            use["the machine's cores"] = self.shared.busy_s / self.shared.cores / (
                mean_step_s * self.p["steps"])
        else:
            use["server CPU"] = max(pool.busy_s / pool.cores for pool in self.pools) / (
                mean_step_s * self.p["steps"])
            use["worker CPU"] = max(sum(self.cost_push), sum(self.cost_get)) / step_s
        return use


def simulate(costs, **spec):
    return Simulation(costs, **spec).run()


def load_costs(path):
    """Returns (Costs, settings of the machine) from a file of `bench/scale --measure`."""
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    return Costs(**data["costs"]), data


def main():
    parser = argparse.ArgumentParser(description="Prints the step time of a simulated cluster.")
    parser.add_argument("--costs", required=True, help="JSON of bench/scale --measure")
    parser.add_argument("--latency_us", type=float, default=30.0, help="of a link, one way")
    for name, of in (("workers", int), ("servers", int), ("model_bytes", int),
                     ("chunk_bytes", int), ("tensors", int), ("gbit", float),
                     ("server_gbit", float), ("server_cores", int), ("compute_s", float),
                     ("jitter_s", float), ("straggler_s", float), ("steps", int), ("seed", int)):
        parser.add_argument("--" + name, type=of, default=DEFAULTS[name])
    args = vars(parser.parse_args())
    costs, _ = load_costs(args.pop("costs"))
    args["latency_s"] = args.pop("latency_us") * 1e-6
    print(json.dumps(simulate(costs, **args), indent=1))


if __name__ == "__main__":
    main()
