"""The kill matrix: kill -9 of each role of Weir and its peers. See bench/peers --help.

A supervisor starts every program again that does not end with 0, RESTART seconds later and by the
same command, as systemd or Kubernetes do. Rows with "gone for good" are the exception."""
import json
import os
import signal
import subprocess
import sys
import time
import typing

import peers_env
from common import SOURCE, commit, machine, write_json
from peers_outcome import HEAD, most, outcome, row, schedule, together, usual
from peers_run import (BIN, FLOWER_LINK, PROGRAMS, Failed, Run, flower_app, flower_home,
                       flower_node, tail, weir_env)
from peers_watch import command_line, descendants, processes

import note  # its folder is in sys.path since peers_run

RESTART, START_LIMIT = 0.5, 180


class Role:
    """A row of a system. victim: name of the program that is killed.

    below: a text in the command line: the process below the victim with this text is killed instead
        of the program. Without `below` all processes below the program die with it, as if its
        machine had failed.
    for_good: it is not started again. shared: the servers of Weir share a folder. after: commands
        that an operator types then."""

    def __init__(self, name, victim, below=None, for_good=False, shared=True, after=()):
        self.name, self.victim, self.below = name, victim, below
        self.for_good, self.shared, self.after = for_good, shared, after


def weir_programs(run, role):
    hosts = "--ps_hosts=127.0.0.1:2221,127.0.0.1:2222"
    made = {}
    for i in range(2):
        folder = os.path.join(run.folder, "saved" if role.shared else "saved-%d" % i)
        made["ps %d" % i] = ([os.path.join(BIN, "ps"), hosts, "--job_name=ps",
                              "--task_index=%d" % i, "--checkpoint_dir=" + folder,
                              "--save_steps=%d" % run.options["save_steps"]], {})
    for i in range(2):
        made["worker %d" % i] = ([run.python("weir"), os.path.join(PROGRAMS, "kills_weir.py"),
                                  str(i)], weir_env())
    return made


def torchrun(run, peer, *argv):
    return [run.python(peer), "-m", "torch.distributed.run", "--nproc_per_node=1",
            "--max_restarts=1000", *argv]


def ddp_programs(run, _role):
    made = {}
    for i in range(2):
        made["node %d" % i] = (torchrun(
            run, "torch", "--nnodes=2", "--rdzv_backend=c10d", "--rdzv_id=job",
            "--rdzv_endpoint=127.0.0.1:29400", "--rdzv_conf=is_host=%d" % (i == 0),
            os.path.join(PROGRAMS, "kills_torchrun.py")), {"GLOO_SOCKET_IFNAME": "lo"})
    return made


def torchft_programs(run, _role):
    home = os.path.dirname(run.python("torchft"))
    made = {"lighthouse": ([os.path.join(home, "torchft_lighthouse"), "--min_replicas=1",
                            "--quorum_tick_ms=100", "--join_timeout_ms=10000",
                            "--bind=127.0.0.1:29510"], {})}
    for i in range(2):
        made["group %d" % i] = (torchrun(
            run, "torchft", "--nnodes=1", "--master_port=%d" % (29600 + i),
            os.path.join(PROGRAMS, "kills_torchft.py"), str(i)),
            {"TORCHFT_LIGHTHOUSE": "http://127.0.0.1:29510", "GLOO_SOCKET_IFNAME": "lo"})
    return made


def tensorflow_programs(run, _role):
    cluster = {"chief": ["127.0.0.1:2300"], "ps": ["127.0.0.1:2301"],
               "worker": ["127.0.0.1:2302", "127.0.0.1:2303"]}
    made = {}
    for kind, hosts in cluster.items():
        for i in range(len(hosts)):
            config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": i}})
            made["%s %d" % (kind, i)] = (
                [run.python("tensorflow"), os.path.join(PROGRAMS, "kills_tensorflow.py")],
                {"TF_CONFIG": config, "CUDA_VISIBLE_DEVICES": ""})
    return made


def flower_programs(run, _role):
    flower_home(run)
    made = {"link": ([*FLOWER_LINK, "--database=" + os.path.join(run.folder, "state.db")], {})}
    for i in range(2):
        made["node %d" % i] = (flower_node(i, 2, "127.0.0.1"), {})
    made["run"] = (["flwr", "run", flower_app(run, "flower_kills"), "here"], {})
    return made


def hivemind_programs(run, _role):
    return {"peer %d" % i: ([run.python("hivemind"), os.path.join(PROGRAMS, "kills_hivemind.py"),
                             str(i)], {}) for i in range(3)}


DRAIN = [os.path.join(BIN, "weirctl"), "--ps_hosts=127.0.0.1:2221,127.0.0.1:2222", "drain", "1"]
TWICE = ((DRAIN, 1.0), (DRAIN, 16.0))  # ps 0 asks for the second call after 15 s

class Kind(typing.NamedTuple):
    """A system. between: most steps from one kill to the next. spare: further steps of a run for
    each kill. pace: seconds that a step lasts at least. ranks: number of ranks that note their
    steps; the first kill is after a step of each of them."""
    name: str
    environments: tuple
    programs: typing.Callable
    between: int
    spare: int
    save_steps: int
    pace: float
    ranks: int
    roles: tuple


KINDS = {
    "weir": Kind("Weir", ("torch", "weir"), weir_programs, 60, 15, 20, 0.02, 2, (
        Role("a worker", "worker 1"),
        Role("ps 1", "ps 1"),
        Role("ps 0 (coordinator)", "ps 0"),
        Role("ps 1, gone for good; `weirctl drain 1` twice", "ps 1", for_good=True, after=TWICE),
        Role("ps 1, gone for good with its own folder", "ps 1", for_good=True, shared=False,
             after=TWICE))),
    "tensorflow": Kind("TensorFlow, ParameterServerStrategy", ("tensorflow",), tensorflow_programs,
                       200, 50, 100, 0, 1, (
        Role("a worker", "worker 1"), Role("ps", "ps 0"), Role("chief (coordinator)", "chief 0"))),
    "torchrun": Kind("torchrun and DDP", ("torch",), ddp_programs, 60, 15, 20, 0.02, 2, (
        Role("a rank", "node 1", below="kills_torchrun.py"),
        Role("node 1: agent and rank", "node 1"),
        Role("node 0: agent, rank, rendezvous", "node 0"))),
    "torchft": Kind("torchft and DDP", ("torch", "torchft"), torchft_programs,
                    60, 15, 20, 0.02, 2, (
        Role("a rank", "group 1", below="kills_torchft.py"),
        Role("node 1: agent and rank", "group 1"),
        Role("lighthouse", "lighthouse"))),
    "hivemind": Kind("hivemind", ("torch", "hivemind"), hivemind_programs, 30, 30, 0, 0.02, 3, (
        Role("a peer", "peer 2"), Role("the first peer", "peer 0"))),
    "flower": Kind("Flower", ("flower",), flower_programs, 3, 5, 2, 0.02, 1, (
        Role("a SuperNode", "node 1"),
        Role("the ServerApp", "link", below="flwr-serverapp"),
        Role("SuperLink (with --database)", "link"))),
}


class Job:
    """Programs of a run under a supervisor, and the notes that they have written."""

    def __init__(self, run, programs):
        self.run, self.programs = run, programs
        self.running, self.due, self.gone = {}, dict.fromkeys(programs, 0.0), set()
        self.notes, self.ends, self.offset = [], {}, 0

    def look(self):
        """Reads notes, and starts what is due."""
        new, self.offset = note.read(self.run.notes, self.offset)
        self.notes += [n for n in new if n["kind"] == "step"]
        self.ends.update((n["rank"], n["digest"]) for n in new if n["kind"] == "end")
        for name, p in list(self.running.items()):
            if p.poll() is not None:
                del self.running[name]
                if p.returncode != 0 and name not in self.gone:
                    self.due[name] = time.monotonic() + RESTART
        for name, at in list(self.due.items()):
            if time.monotonic() >= at:
                del self.due[name]
                argv, env = self.programs[name]
                self.running[name] = self.run.start(name, argv, **env)

    def until(self, condition, seconds):
        """Returns the condition's first value that is not None; None after these seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
            found = condition()
            if found is not None:
                return found
            time.sleep(0.005)
        return None

    def kill(self, role):
        """Kills the victim; returns the time."""
        root = self.running[role.victim].pid
        below = sorted(descendants(processes(), {root}))
        if role.below:
            below = [pid for pid in below if pid != root and role.below in command_line(pid)][:1]
        if role.for_good:
            self.gone.add(role.victim)
        now = time.time()
        for pid in below:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not below:
            raise Failed("there is no process %s" % role.below)
        return now


def one_run(args, kind, role, moments):
    """Makes one run with the kills of these moments. Returns (results of kills, digest or None)."""
    system = KINDS[kind]
    options = {"steps": args.kills_a_run * (system.between + system.spare), "pace": system.pace,
               "save_steps": system.save_steps, "server": "127.0.0.1:2221,127.0.0.1:2222"}
    run, results = Run(args, options, every=1), []
    try:
        job = Job(run, system.programs(run, role))
        ready = job.until(lambda: True if together(job.notes, system.ranks) else None, START_LIMIT)
        if ready is None:
            raise Failed("no steps within %d s: %s" % (START_LIMIT, tail(run.processes[-1][1])))
        for steps, delay in moments:
            result = one_kill(args, job, role, steps, delay)
            if result is None:
                break
            results.append(result)
            if isinstance(result, str):
                return results, None
            if role.for_good:
                break
        job.until(lambda: True if 0 in job.ends else None, args.limit)
        return results, job.ends.get(0)
    finally:
        run.close()


def one_kill(args, job, role, steps, delay):
    """Returns what a kill cost, or a text if training did not move; None: the run is at its end."""
    at = most(job.notes) + steps
    if job.until(lambda: True if most(job.notes) >= at or job.ends else None, args.limit) is None:
        return "training was too slow before the kill"
    job.until(lambda: None, delay)
    if job.ends:
        return None
    step_seconds = usual(job.notes)
    killed = job.kill(role)
    for argv, wait in role.after:
        job.until(lambda: None, wait)
        subprocess.run(argv, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=args.patience)
    found = job.until(lambda: outcome(job.notes, killed, step_seconds), args.patience)
    return found or "no new step within %d s" % args.patience


def matrix_row(args, kind, role, right):
    """Returns (kills, digests) of one role."""
    moments = schedule(args.seed, kind, role.name, args.kills, KINDS[kind].between)
    kills, digests = [], []
    while len(kills) < args.kills:
        try:
            found, digest = one_run(args, kind, role, moments[len(kills):][:args.kills_a_run])
        except Failed as why:
            found, digest = [str(why)], None
        kills += found or ["the run ended before the kill"]
        digests += [digest] if digest else []
        stuck = [isinstance(k, str) for k in kills]
        if role.for_good and not stuck[-1]:
            if len(kills) >= args.give_up:
                break
        elif len(kills) >= args.give_up and all(stuck):
            break
    print(row(KINDS[kind].name, role.name, kills, digests, right), file=sys.stderr, flush=True)
    return kills, digests


def undisturbed(args, kind):
    """Returns the digests of two runs without kills."""
    digests = []
    for _ in range(2):
        _, digest = one_run(args, kind, KINDS[kind].roles[0], [])
        digests += [digest] if digest else []
    return digests


def measure(args):
    kinds = args.kinds.split(",")
    if not set(kinds) <= set(KINDS):
        sys.exit("bench: --kinds is a list of %s" % ", ".join(KINDS))
    lines, results = [], []
    for kind in kinds:
        name, roles = KINDS[kind].name, KINDS[kind].roles
        why = next(filter(None, (peers_env.reason(args.cache, e)
                                 for e in KINDS[kind].environments)), None)
        right = []
        if why is None:
            try:
                right = undisturbed(args, kind)
            except Failed as failed:
                why = str(failed)
        if why is not None:
            lines.append("| %s | did not run: %s | | | | |" % (name, why.replace("|", "/")))
            print(lines[-1], file=sys.stderr, flush=True)
            continue
        for role in roles:
            if args.roles and role.victim not in args.roles.split(","):
                continue
            kills, digests = matrix_row(args, kind, role, right)
            lines.append(row(name, role.name, kills, digests, right))
            results.append([kind, role.name, kills, digests, right])
    print("\n%s; Weir %s; %d kills a row, seed %d, %d kills a run; started again after %.1f s; "
          "load at the end %.1f\n" % (machine(), commit(SOURCE), args.kills, args.seed,
                                      args.kills_a_run, RESTART, os.getloadavg()[0]))
    print("\n".join([HEAD, *lines]))
    write_json({"machine": machine(), "options": vars(args), "results": results}, args.json)
