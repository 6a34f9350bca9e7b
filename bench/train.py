"""Images/s of training the deep MNIST CNN on Fashion-MNIST on one machine, in one run:

  weir       1 ps and 2 workers over gRPC on loopback, --intra_op_threads=1
  ddp        PyTorch's DistributedDataParallel on gloo, 2 ranks, one thread each
  torch      2 PyTorch processes that do not talk: what DDP could reach at most (--alone)
  free2      2 Weir workers that train alone at the same time, without a server (--cost)
  free1      1 Weir worker alone (--cost)
  ps1        1 ps and 1 worker (--cost)

The network is the same on both sides, layer by layer (examples/models/deep_mnist.json: convolution
5x5x32, relu, max pool, convolution 5x5x64, relu, max pool, dense 1024, relu, dropout 0.5, dense 10,
softmax cross-entropy; 3,274,634 parameters, which both sides confirm), as are the batch, the
optimizer with its hyperparameters, and the images, which both read from memory in random order.
Rounds are interleaved; the median of each contestant's rounds counts.

What is timed: on both sides `--steps` steps with every image of every worker, from the first step
to the last, start-up, reading of files and evaluation left out. PyTorch gets warm-up steps before
the clock starts; Weir gets none.
"""
import argparse
import gzip
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from common import free_ports, machine

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PARAMETERS = 3274634
WORKERS = 2


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
    """One PyTorch process; prints its images and seconds as JSON."""
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(args.rank)
    dims, pixels = read_idx(os.path.join(args.data_dir, "train-images-idx3-ubyte.gz"))
    labels = read_idx(os.path.join(args.data_dir, "train-labels-idx1-ubyte.gz"))[1]
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(dims[0], 1, *dims[1:])
    labels = torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()
    model = network(torch)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS
    if args.as_ddp:
        import torch.distributed as dist
        dist.init_process_group("gloo", rank=args.rank, world_size=WORKERS,
                                init_method="tcp://127.0.0.1:%d" % args.port)
        model = torch.nn.parallel.DistributedDataParallel(model)
    make = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[args.optimizer]
    optimizer = make(model.parameters(), lr=args.learning_rate)
    loss_of = torch.nn.CrossEntropyLoss()
    order = torch.randperm(dims[0])

    def steps(n):
        for step in range(n):
            first = (step * args.batch_size) % (dims[0] - args.batch_size)
            index = order[first:first + args.batch_size]
            x, y = images[index].float() / 255, labels[index]
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            loss.item()

    steps(args.warm_up)
    if args.as_ddp:
        dist.barrier()
    start = time.monotonic()
    steps(args.steps)
    print(json.dumps({"images": args.steps * args.batch_size,
                      "seconds": time.monotonic() - start}))


def wait_all(processes, what, seconds):
    """Their output, in order; the run ends if one fails or takes too long."""
    deadline, outputs = time.monotonic() + seconds, []
    try:
        for p in processes:
            out = p.communicate(timeout=max(1, deadline - time.monotonic()))[0]
            if p.returncode != 0:
                sys.exit("bench: %s failed with status %d:\n%s" % (what, p.returncode, out))
            outputs.append(out)
    except subprocess.TimeoutExpired:
        sys.exit("bench: %s did not end within %d s" % (what, seconds))
    finally:
        for p in processes:
            if p.poll() is None:
                p.kill()
            p.wait()
    return outputs


def run_torch(args, ddp):
    port = free_ports(1)[0]
    env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
               GLOO_SOCKET_IFNAME="lo")
    processes = []
    for rank in range(WORKERS):
        argv = [sys.executable, "-B", os.path.abspath(__file__), "--rank=%d" % rank,
                "--port=%d" % port, "--steps=%d" % args.steps, "--warm_up=%d" % args.warm_up,
                "--batch_size=%d" % args.batch_size, "--optimizer=" + args.optimizer,
                "--learning_rate=%g" % args.learning_rate, "--data_dir=" + args.data_dir]
        processes.append(subprocess.Popen(argv + ["--as_ddp"] * ddp, env=env, text=True,
                                          stdout=subprocess.PIPE))
    outputs = wait_all(processes, "PyTorch", args.limit)
    results = [json.loads(o.strip().split("\n")[-1]) for o in outputs]
    return sum(r["images"] for r in results) / max(r["seconds"] for r in results)


def run_weir(args, n_workers, with_ps):
    """Images/s of n_workers with one server, or of as many that train alone at the same time."""
    ports = free_ports(1 + n_workers)
    hosts = ["--ps_hosts=127.0.0.1:%d" % ports[0],
             "--worker_hosts=" + ",".join("127.0.0.1:%d" % p for p in ports[1:])]
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
                          "--summary_json=" + path, "--progress=lines", *args.worker_flag])
        processes = [subprocess.Popen(a, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True) for a in argvs]
        wait_all(processes, "Weir", args.limit)
        summaries = []
        for path in paths:
            with open(path, encoding="utf-8") as f:
                summaries.append(json.load(f))
    for s in summaries:
        if s["parameters"] != PARAMETERS or s["images"] != args.steps * args.batch_size:
            sys.exit("bench: Weir trained something else: %s" % s)
    return sum(s["images"] for s in summaries) / max(s["elapsed_seconds"] for s in summaries)


def parse():
    p = argparse.ArgumentParser(prog="bench/train", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--warm_up", type=int, default=10, help="PyTorch's steps before the clock")
    p.add_argument("--batch_size", type=int, default=64, help="per worker")
    p.add_argument("--optimizer", choices=("adam", "sgd"), default="adam", help="on both sides")
    p.add_argument("--learning_rate", type=float, default=0.001)
    p.add_argument("--alone", action="store_true", help="also PyTorch processes that do not talk")
    p.add_argument("--cost", action="store_true", help="also Weir with fewer workers or servers")
    p.add_argument("--no_torch", action="store_true", help="leave PyTorch out")
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


def main():
    args = parse()
    if args.rank is not None:
        torch_rank(args)
        return
    version = None
    if not args.no_torch:
        import torch
        version = torch.__version__
    contestants = {"weir": lambda: run_weir(args, WORKERS, True),
                   "ddp": lambda: run_torch(args, True)}
    if args.cost:
        contestants["free2"] = lambda: run_weir(args, WORKERS, False)
        contestants["free1"] = lambda: run_weir(args, 1, False)
        contestants["ps1"] = lambda: run_weir(args, 1, True)
    if args.no_torch:
        del contestants["ddp"]
    if args.alone:
        contestants["torch"] = lambda: run_torch(args, False)
    figures = {name: [] for name in contestants}
    for i in range(args.rounds):
        # Every other round goes backwards, so that nobody always runs on the cooler machine.
        for name in list(contestants)[::1 if i % 2 == 0 else -1]:
            figures[name].append(contestants[name]())
            print("round %d of %d: %-5s %7.0f images/s" %
                  (i + 1, args.rounds, name, figures[name][-1]), file=sys.stderr, flush=True)
    report(args, figures, version)


def report(args, figures, version):
    names = {"weir": "Weir, 1 ps and 2 workers",
             "free2": "Weir, 2 workers alone at the same time",
             "free1": "Weir, 1 worker alone",
             "ps1": "Weir, 1 ps and 1 worker",
             "ddp": "PyTorch %s, DDP on gloo, 2 ranks" % version,
             "torch": "PyTorch %s, 2 processes that do not talk" % version}
    median = {name: statistics.median(values) for name, values in figures.items()}
    print("\n%s; batch %d per worker, %s, %d steps, median of %d interleaved rounds:\n" %
          (machine(), args.batch_size, args.optimizer, args.steps, args.rounds))
    base = median.get("ddp", median["weir"])
    print("| | images/s | lowest to highest | against %s |\n| --- | --- | --- | --- |" %
          ("DDP" if "ddp" in median else "1 ps and 2 workers"))
    for name, values in figures.items():
        print("| %s | %.0f | %.0f to %.0f | %.2f |" %
              (names[name], median[name], min(values), max(values), median[name] / base))
    ratios = {}
    if args.cost:
        # Round by round: what one round's neighbours on the machine cost, both sides paid.
        ratios = {"kept by 2 workers": [a / b for a, b in zip(figures["weir"], figures["free2"])],
                  "kept by 1 worker": [a / b for a, b in zip(figures["ps1"], figures["free1"])]}
        for name, values in ratios.items():
            print("\n%s with a server, of what they reach alone: median %.3f (%.3f to %.3f)" %
                  (name, statistics.median(values), min(values), max(values)))
    result = {"machine": machine(), "torch": version, "batch_size": args.batch_size,
              "optimizer": args.optimizer, "steps": args.steps, "images_per_second": figures,
              "median": median, "ratio": median["weir"] / base, "kept": ratios}
    print("\n" + json.dumps(result))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=2)


if __name__ == "__main__":
    main()
