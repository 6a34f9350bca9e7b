"""Measures images/s of training the deep MNIST CNN on Fashion-MNIST on one machine, in one run:

  weir       1 ps and 2 workers over gRPC on loopback, --intra_op_threads=1
  ddp        PyTorch's DistributedDataParallel over gloo, 2 ranks, one thread each
  ddp2       the same with PyTorch 2 (--torch2: a venv that `bench/train --setup2` makes)
  torch      2 PyTorch processes that do not communicate: the limit of DDP (--alone)
  torch2     the same with PyTorch 2 (--alone --torch2)
  free2      2 Weir workers that train alone at the same time, without a server (--cost)
  free1      1 Weir worker alone (--cost)
  ps1        1 ps and 1 worker (--cost)

Both sides have the same network, layer by layer (examples/models/deep_mnist.json: convolution
5x5x32, relu, max pool, convolution 5x5x64, relu, max pool, dense 1024, relu, dropout 0.5, dense 10,
softmax cross-entropy; both sides check the number of parameters, 3,274,634). They also have the
same batch, the same optimizer and hyperparameters, and the same images, which they read from memory
in random order. Rounds of the contestants alternate, and the result of a contestant is the median
of its rounds.

--precision=bf16 makes Weir's workers multiply in bf16, and runs PyTorch under autocast.
--precision=fp32,bf16 runs all contestants in both, in turns. PyTorch 2 runs in its fastest way:
with images and weights channels-last, a fused optimizer and, if Debian's libtcmalloc-minimal4 is
installed, this allocator. The report shows whether it was used.

The program checks that all contestants train alike. A table has each contestant's loss over the
steps; PyTorch's warm-up steps count as steps. The run fails if a contestant's mean loss over the
last quarter of --steps differs from Weir's by more than --allow_loss. In measurements two seeds of
Weir differed by 5 % after 100 steps, and Weir and DDP by 4 to 6 % after 40 and 100 steps. The loss
of workers alone was 8 to 12 % above that of workers that share a server after 40 steps. A tenth of
the learning rate makes the loss more than twice as high.

The time of both sides is that of `--steps` steps, from the first step to the last, without
start-up, reading of files and evaluation. PyTorch makes warm-up steps before the clock starts; Weir
makes none.
"""
import argparse
import collections
import gzip
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from common import (SOURCE, free_ports, in_turns, loopback_hosts, machine, read_json, wait_all,
                    write_json)
import common

TORCH2 = os.path.join(SOURCE, "build/venv-torch2/bin/python")
TCMALLOC = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
PARAMETERS = 3274634
WORKERS = 2
LOSSES = collections.defaultdict(list)  # contestant: [{step: mean loss of its workers}], by round
TCMALLOC_LOADED = {}  # contestant with PyTorch: True if all its processes loaded it
N_POINTS = 5  # steps in the table of losses


def read_idx(path):
    with gzip.open(path, "rb") as f:
        content = f.read()
    n_dims = content[3]
    dims = struct.unpack(">%dI" % n_dims, content[4:4 + 4 * n_dims])
    return dims, content[4 + 4 * n_dims:]


def network(torch):
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(7 * 7 * 64, 1024), nn.ReLU(), nn.Dropout(0.5), nn.Linear(1024, 10))


def torch_rank(args):
    """Runs one PyTorch process; prints its images and seconds as JSON."""
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(args.rank)
    dims, pixels = read_idx(os.path.join(args.data_dir, "train-images-idx3-ubyte.gz"))
    labels = read_idx(os.path.join(args.data_dir, "train-labels-idx1-ubyte.gz"))[1]
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(dims[0], 1, *dims[1:])
    labels = torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()
    model = network(torch)
    layout = torch.channels_last if torch.__version__ >= "2" else torch.contiguous_format
    model = model.to(memory_format=layout)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS
    if args.as_ddp:
        import torch.distributed as dist
        dist.init_process_group("gloo", rank=args.rank, world_size=WORKERS,
                                init_method="tcp://127.0.0.1:%d" % args.port)
        model = torch.nn.parallel.DistributedDataParallel(model)
    make = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[args.optimizer]
    fused = {"fused": True} if torch.__version__ >= "2" else {}
    optimizer = make(model.parameters(), lr=args.learning_rate, **fused)
    loss_of = torch.nn.CrossEntropyLoss()
    order = torch.randperm(dims[0])
    losses = []

    def steps(n):
        for step in range(n):
            first = (step * args.batch_size) % (dims[0] - args.batch_size)
            index = order[first:first + args.batch_size]
            x, y = images[index].float() / 255, labels[index]
            x = x.contiguous(memory_format=layout)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in args.precision):
                loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    steps(args.warm_up)
    if args.as_ddp:
        dist.barrier()
    start = time.monotonic()
    steps(args.steps)
    seconds = time.monotonic() - start
    if args.as_ddp:
        dist.destroy_process_group()
    print(json.dumps({"images": args.steps * args.batch_size, "seconds": seconds,
                      "losses": dict(enumerate(losses, 1)),
                      "tcmalloc": "tcmalloc" in maps()}))


def maps():
    """Returns the libraries that are loaded into this process."""
    with open("/proc/self/maps", encoding="utf-8") as f:
        return f.read()


def keep_losses(key, of_workers):
    """Stores the losses of a round. of_workers: {step: loss} of each worker."""
    LOSSES[key].append({step: statistics.mean(w[step] for w in of_workers)
                        for step in of_workers[0]})


def run_torch(args, key, python, ddp):
    name, precision = key
    port = free_ports(1)[0]
    env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
               GLOO_SOCKET_IFNAME="lo")
    if name.endswith("2") and os.path.exists(TCMALLOC):
        env["LD_PRELOAD"] = TCMALLOC
    processes = []
    for rank in range(WORKERS):
        argv = [python, "-B", os.path.abspath(__file__), "--rank=%d" % rank,
                "--precision=" + precision,
                "--port=%d" % port, "--steps=%d" % args.steps, "--warm_up=%d" % args.warm_up,
                "--batch_size=%d" % args.batch_size, "--optimizer=" + args.optimizer,
                "--learning_rate=%g" % args.learning_rate, "--data_dir=" + args.data_dir]
        processes.append(subprocess.Popen(argv + ["--as_ddp"] * ddp, env=env, text=True,
                                          stdout=subprocess.PIPE))
    outputs = wait_all(processes, "PyTorch", args.limit)
    results = [json.loads(o.strip().split("\n")[-1]) for o in outputs]
    keep_losses(key, [{int(step): loss for step, loss in r["losses"].items()} for r in results])
    TCMALLOC_LOADED[name] = all(r["tcmalloc"] for r in results)
    return sum(r["images"] for r in results) / max(r["seconds"] for r in results)


def told_losses(output):
    """Returns {step: loss} from a worker's lines."""
    return {int(step): float(loss)
            for step, loss in re.findall(r"\(global step: (\d+)\), loss ([^,]+),", output)}


def run_weir(args, key, n_workers, with_ps):
    """Returns images/s of n_workers with one server, or of n_workers alone at the same time."""
    hosts = loopback_hosts(n_workers)
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        paths = [os.path.join(folder, "%d.json" % i) for i in range(n_workers)]
        argvs = [[os.path.join(args.bin, "ps"), *hosts, "--task_index=0", *args.ps_flag]] * with_ps
        for i, path in enumerate(paths):
            member = [*hosts, "--task_index=%d" % i] if with_ps else ["--seed=%d" % i]
            argvs.append([os.path.join(args.bin, "worker"), *member,
                          "--model=deep_mnist", "--optimizer=" + args.optimizer,
                          "--learning_rate=%g" % args.learning_rate,
                          "--models_dir=" + os.path.join(SOURCE, "examples/models"),
                          "--data_dir=" + args.data_dir, "--batch_size=%d" % args.batch_size,
                          "--train_steps=%d" % args.steps, "--intra_op_threads=1",
                          "--summary_json=" + path, "--progress=lines", "--log_every=1",
                          "--precision=" + key[1], *args.worker_flag])
        outputs = common.run_weir(argvs, args.limit)[-n_workers:]
        keep_losses(key, [told_losses(o) for o in outputs])
        summaries = [read_json(path) for path in paths]
    for s in summaries:
        if s["parameters"] != PARAMETERS or s["images"] != args.steps * args.batch_size:
            sys.exit("bench: Weir trained something else: %s" % s)
    return sum(s["images"] for s in summaries) / max(s["elapsed_seconds"] for s in summaries)


def precisions(text):
    if text not in ("fp32", "bf16", "fp32,bf16"):
        raise argparse.ArgumentTypeError("%r is not fp32, bf16 or fp32,bf16" % text)
    return text.split(",")


def parse():
    p = argparse.ArgumentParser(prog="bench/train", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--warm_up", type=int, default=10, help="PyTorch's steps before the clock")
    p.add_argument("--batch_size", type=int, default=64, help="per worker")
    p.add_argument("--optimizer", choices=("adam", "sgd"), default="adam", help="on both sides")
    p.add_argument("--learning_rate", type=float, default=0.001)
    p.add_argument("--alone", action="store_true", help="also separate PyTorch processes")
    p.add_argument("--cost", action="store_true", help="also Weir with fewer workers or servers")
    p.add_argument("--no_torch", action="store_true", help="leave PyTorch out")
    p.add_argument("--precision", type=precisions, default="fp32", metavar="fp32|bf16|fp32,bf16",
                   help="on both sides")
    p.add_argument("--allow_loss", type=float, default=0.25, metavar="PART",
                   help="part of Weir's loss in the last quarter by which another may differ")
    p.add_argument("--torch2", nargs="?", const=TORCH2, metavar="PYTHON",
                   help="also PyTorch 2, of this interpreter (that of bench/train --setup2)")
    p.add_argument("--ps_flag", action="append", default=[], help="passed on to ps")
    p.add_argument("--worker_flag", action="append", default=[], help="passed on to worker")
    p.add_argument("--data_dir", default="/usr/share/datasets/fashion-mnist")
    p.add_argument("--bin", default=os.path.join(SOURCE, "build/bin"))
    p.add_argument("--json", metavar="FILE", help="also write the figures here")
    p.add_argument("--limit", type=int, default=600, help="seconds for one round of one contestant")
    for name in ("--rank", "--port"):
        p.add_argument(name, type=int, help=argparse.SUPPRESS)
    p.add_argument("--as_ddp", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args()


def version_of(python):
    """Returns the version of PyTorch in this interpreter, or None."""
    if python is None:
        return None
    done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], text=True,
                          stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit("bench: %s has no PyTorch; bench/train --setup or --setup2 installs it" % python)
    return done.stdout.strip()


def main():
    args = parse()
    if args.rank is not None:
        torch_rank(args)
        return
    version = {"ddp": version_of(None if args.no_torch else sys.executable),
               "ddp2": version_of(args.torch2)}
    runs = [("weir", True, run_weir, (WORKERS, True)),
            ("free2", args.cost, run_weir, (WORKERS, False)),
            ("free1", args.cost, run_weir, (1, False)),
            ("ps1", args.cost, run_weir, (1, True)),
            ("ddp", not args.no_torch, run_torch, (sys.executable, True)),
            ("torch", not args.no_torch and args.alone, run_torch, (sys.executable, False)),
            ("ddp2", args.torch2, run_torch, (args.torch2, True)),
            ("torch2", args.torch2 and args.alone, run_torch, (args.torch2, False))]
    contestants = {(name, precision): lambda f=f, key=(name, precision), how=how: f(args, key, *how)
                   for precision in args.precision for name, wanted, f, how in runs if wanted}
    figures = {key: [] for key in contestants}
    for i, key in in_turns(args.rounds, contestants):
        figures[key].append(contestants[key]())
        print("round %d of %d: %-6s %s %7.0f images/s" %
              (i + 1, args.rounds, *key, figures[key][-1]), file=sys.stderr, flush=True)
    report(args, figures, version)
    check_losses(args)


def late_loss(args, key):
    """Returns the mean loss over the last quarter of the steps, and over the rounds."""
    return statistics.mean(loss for way in LOSSES[key] for step, loss in way.items()
                           if args.steps * 3 // 4 < step <= args.steps)


def check_losses(args):
    """Ends the run if a contestant's loss differs from Weir's: speeds are then not comparable."""
    want, off = late_loss(args, ("weir", args.precision[0])), []
    for key in LOSSES:
        got = late_loss(args, key)
        if not abs(got - want) <= args.allow_loss * want:
            off.append("%s in %s: %.3f" % (*key, got))
    if off:
        sys.exit("bench: these do not train alike: the loss of the last quarter is %.3f for weir "
                 "in %s, and another's may differ by %g of it: %s" %
                 (want, args.precision[0], args.allow_loss, "; ".join(off)))


def losses_table(args, keys, names):
    """Prints the losses over the steps, which show where two contestants diverge."""
    points = sorted({max(1, args.steps * (k + 1) // N_POINTS) for k in range(N_POINTS)})
    print("\nLoss, the mean of the 5 steps up to each:\n\n| step |" +
          "".join(" %d |" % p for p in points) + " last quarter |\n|" +
          " --- |" * (len(points) + 2))
    for key in keys:
        way = {step: statistics.mean(round_[step] for round_ in LOSSES[key])
               for step in LOSSES[key][0]}
        means = [statistics.mean(loss for step, loss in way.items() if p - 5 < step <= p)
                 for p in points]
        print("| %s |" % names[key[0]] + "".join(" %.3f |" % m for m in means) +
              " %.3f |" % late_loss(args, key))


def report(args, figures, version):
    names = {"weir": "Weir, 1 ps and 2 workers",
             "free2": "Weir, 2 workers alone at the same time",
             "free1": "Weir, 1 worker alone",
             "ps1": "Weir, 1 ps and 1 worker",
             "ddp": "PyTorch %s, DDP on gloo, 2 ranks" % version["ddp"],
             "torch": "PyTorch %s, 2 processes that do not communicate" % version["ddp"],
             "ddp2": "PyTorch %s, DDP on gloo, 2 ranks" % version["ddp2"],
             "torch2": "PyTorch %s, 2 processes that do not communicate" % version["ddp2"]}
    for name, loaded in TCMALLOC_LOADED.items():
        names[name] += ", tcmalloc" if loaded else ", the C library's malloc"
    results = {precision: report_precision(args, precision, figures, names)
               for precision in args.precision}
    result = {"machine": machine(), "torch": version, "batch_size": args.batch_size,
              "optimizer": args.optimizer, "steps": args.steps, "tcmalloc": TCMALLOC_LOADED,
              "precision": results,
              "figures": [["%s, %s" % (names[name], precision), "images/s", median]
                          for precision, result in results.items()
                          for name, median in result["median"].items()
                          if names[name].startswith("Weir")]}
    print("\n" + json.dumps(result))
    write_json(result, args.json)


def report_precision(args, precision, all_figures, names):
    """Prints the tables of one precision; returns its figures."""
    figures = {name: values for (name, p), values in all_figures.items() if p == precision}
    median = {name: statistics.median(values) for name, values in figures.items()}
    print("\n%s; batch %d per worker, %s, %s, %d steps, median of %d interleaved rounds:\n" %
          (machine(), args.batch_size, args.optimizer, precision, args.steps, args.rounds))
    against = next((name for name in ("ddp", "ddp2") if name in median), "weir")
    base = median[against]
    print("| | images/s | lowest to highest | against %s |\n| --- | --- | --- | --- |" %
          names[against])
    for name, values in figures.items():
        print("| %s | %.0f | %.0f to %.0f | %.2f |" %
              (names[name], median[name], min(values), max(values), median[name] / base))
    ratios = {}
    if args.cost:
        # The ratios are those of each round, because the load of other programs slows both down.
        ratios = {"kept by 2 workers": [a / b for a, b in zip(figures["weir"], figures["free2"])],
                  "kept by 1 worker": [a / b for a, b in zip(figures["ps1"], figures["free1"])]}
        for name, values in ratios.items():
            print("\n%s with a server, part of their speed alone: median %.3f (%.3f to %.3f)" %
                  (name, statistics.median(values), min(values), max(values)))
    losses_table(args, [(name, precision) for name in figures], names)
    return {"images_per_second": figures, "median": median, "ratio": median["weir"] / base,
            "kept": ratios, "loss": {name: late_loss(args, (name, precision)) for name in figures}}


if __name__ == "__main__":
    main()
