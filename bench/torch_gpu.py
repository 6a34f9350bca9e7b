"""Measures weir.torch on a GPU beside PyTorch alone: same card, network, batches and first values.

  weir   weir.torch.Exchange with the name of an optimizer: 1 ps and 1 worker on this host
  early  the same with early=True: each layer's forward waits for its own parameters
  own    the same with the script's own optimizer: step() sends the gradients, and waits
  ddp    DistributedDataParallel with one rank (NCCL; on the CPU gloo), fused optimizer
  plain  PyTorch in one process, fused optimizer

Networks: `resnet18` for images of CIFAR's shape (32 x 32), with SGD and momentum, and `gpt`, of
the size of GPT-2 (124 million parameters, 1,024 tokens), with AdamW. The batches are random
numbers. On a GPU both compute in bf16 by autocast. --device=cpu runs small networks on the CPU, to
try this program.

    build/venv-torch2/bin/python bench/torch_gpu.py --network=gpt

The report has images/s (tokens/s), the milliseconds of a step in which memory was copied between
host and card, and the share of them in which the card computed at the same time (from a trace of
torch.profiler of --traced steps, after the timed ones), the highest memory of the card's allocator,
the pinned memory, and the highest memory of the worker and of ps. Copies from and to memory that is
not pinned are counted, too. The program fails if the kinds do not reach the same loss. Rounds of
the kinds alternate, every second one in reverse order, and the results are medians. The first
--warmup steps are not timed.

Exit status 77: PyTorch sees no card."""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from common import SOURCE, free_ports, in_turns, machine, read_json, wait_all, write_json

os.environ.setdefault("WEIR_LIBRARY", os.path.join(SOURCE, "build/lib/libweir.so.0"))
os.environ.setdefault("WEIR_PROGRAMS", os.path.join(SOURCE, "build/bin"))
sys.path.insert(0, os.path.join(SOURCE, "python"))
import weir  # noqa: E402

NAMES = {"weir": "Weir, 1 ps and 1 worker", "early": "Weir with early=True",
         "own": "Weir with the script's optimizer", "ddp": "DDP, 1 rank", "plain": "PyTorch alone"}
WEIR = ("weir", "early", "own")
ALLOW_LOSS = 0.02  # largest relative difference between the last losses of two kinds
N_BATCHES = 8  # number of different batches
# Sizes on a card, and those with which the CPU tries the program.
SIZES = {"resnet18": ({"width": 64, "batch": 128}, {"width": 4, "batch": 4}),
         "gpt": ({"layers": 12, "width": 768, "heads": 12, "context": 1024, "letters": 50304,
                  "batch": 8},
                 {"layers": 2, "width": 32, "heads": 2, "context": 16, "letters": 64, "batch": 2})}


def parse():
    p = argparse.ArgumentParser(description=__doc__, prog="bench/torch_gpu.py",
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--network", choices=tuple(SIZES), default="resnet18")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=100, help="timed steps of a round")
    p.add_argument("--warmup", type=int, default=20)
    p.add_argument("--traced", type=int, default=5)
    p.add_argument("--batch", type=int, help="samples of a step")
    p.add_argument("--precision", choices=("bf16", "fp32"), help="default: bf16 on a GPU")
    p.add_argument("--kinds", default=",".join(NAMES))
    p.add_argument("--limit", type=int, default=600, help="seconds for one round of one kind")
    p.add_argument("--json", metavar="FILE", help="also write the figures here")
    p.add_argument("--run", help=argparse.SUPPRESS)  # options of one run
    return p.parse_args()


def resnet18(torch, width):
    """Returns a ResNet-18 for small images: the first convolution is 3 x 3, without pooling."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, n_in, n, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(n_in, n, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(n, n, 3, 1, 1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(n), nn.BatchNorm2d(n)
            self.short = nn.Sequential() if n_in == n else nn.Sequential(
                nn.Conv2d(n_in, n, 1, stride, bias=False), nn.BatchNorm2d(n))

        def forward(self, x):
            y = torch.relu(self.norm1(self.conv1(x)))
            return torch.relu(self.norm2(self.conv2(y)) + self.short(x))

    n_in = width
    parts = [nn.Conv2d(3, n_in, 3, 1, 1, bias=False), nn.BatchNorm2d(n_in), nn.ReLU()]
    for i in range(4):
        for stride in (1 if i == 0 else 2, 1):
            parts.append(Block(n_in, width << i, stride))
            n_in = width << i
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, 10))


def gpt(torch, o):
    """Returns the GPT of examples/python/char_gpt.py with other sizes."""
    sys.path.insert(0, os.path.join(SOURCE, "examples/python"))
    sys.argv = [sys.argv[0], "--text=" + __file__]  # the text is not used
    import char_gpt
    char_gpt.LETTERS = range(o["letters"])
    for name in ("layers", "width", "heads", "context"):
        setattr(char_gpt, name.upper(), o[name])

    class Net(char_gpt.GPT):
        def forward(self, x):
            x = self.letter(x) + self.place(torch.arange(x.shape[1], device=x.device))
            return self.head(self.norm(self.blocks(x)))
    return Net()


class Run:
    """One run of one kind, in a process of its own."""

    def __init__(self, torch, o):
        self.torch, self.o = torch, o
        self.device = torch.device(o["device"], 0) if o["device"] == "cuda" else torch.device("cpu")
        torch.manual_seed(1)
        if o["network"] == "gpt":
            self.model = gpt(torch, o)
            tokens = torch.randint(o["letters"], (N_BATCHES, o["batch"], o["context"] + 1))
            self.batches = [(t[:, :-1], t[:, 1:]) for t in tokens]
            self.n_items = o["batch"] * o["context"]
        else:
            self.model = resnet18(torch, o["width"])
            self.batches = [(torch.randn(o["batch"], 3, 32, 32), torch.randint(10, (o["batch"],)))
                            for _ in range(N_BATCHES)]
            self.n_items = o["batch"]
        self.model.to(self.device)
        self.batches = [(x.to(self.device), y.to(self.device)) for x, y in self.batches]
        self.losses, self.begun, self.seconds, self.profile = [], 0.0, 0.0, None
        self.total = o["warmup"] + o["steps"] + o["traced"]
        self.pinned, self.peak = 0, 0

    def optimizer(self, fused):
        optim = self.torch.optim
        if self.o["network"] == "gpt":
            return optim.AdamW(self.model.parameters(), lr=6e-4, weight_decay=0.1, fused=fused)
        return optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9, fused=fused)

    def wait(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def before(self, step):
        """Starts the clock, and later the trace."""
        o, profiler = self.o, self.torch.profiler
        if step == o["warmup"]:
            self.wait()
            self.begun = time.monotonic()
        if step == o["warmup"] + o["steps"]:
            self.wait()
            self.seconds = time.monotonic() - self.begun
            self.peak = self.torch.cuda.max_memory_allocated() if self.device.type == "cuda" else 0
            if self.device.type == "cuda":
                self.profile = profiler.profile(activities=[profiler.ProfilerActivity.CUDA])
                self.profile.start()

    def loss(self, model, step):
        x, y = self.batches[step % N_BATCHES]
        with self.torch.autocast(self.device.type, dtype=self.torch.bfloat16,
                                 enabled=self.o["precision"] == "bf16"):
            loss = self.torch.nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        self.losses.append(loss.detach())
        return loss

    def after(self, step):
        """Ends the trace behind the last step, before the servers end."""
        if step + 1 == self.total and self.profile:
            self.wait()
            self.profile.stop()

    def weir(self):
        o = self.o
        settings = {"train_steps": self.total, "batch_size": o["batch"]}
        rule = None
        if o["kind"] == "own":
            rule = self.optimizer(False)
            exchange = weir.torch.Exchange(self.model, rule, **settings)
        elif o["network"] == "gpt":
            exchange = weir.torch.Exchange(self.model, "adamw", learning_rate=6e-4,
                                           weight_decay=0.1, early=o["kind"] == "early", **settings)
        else:
            exchange = weir.torch.Exchange(self.model, "momentum", learning_rate=0.05,
                                           momentum=0.9, early=o["kind"] == "early", **settings)
        for step in exchange:
            self.before(step.step)
            self.loss(self.model, step.step).backward()
            if rule:
                rule.step()
                rule.zero_grad()
            self.after(step.step)
            self.pinned = exchange.pinned_bytes

    def pytorch(self):
        model, rule = self.model, self.optimizer(True)
        if self.o["kind"] == "ddp":
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            self.torch.distributed.init_process_group(backend)
            model = self.torch.nn.parallel.DistributedDataParallel(
                model, gradient_as_bucket_view=True)
        for step in range(self.total):
            self.before(step)
            self.loss(model, step).backward()
            rule.step()
            rule.zero_grad()
            self.after(step)
        if self.o["kind"] == "ddp":
            self.torch.distributed.destroy_process_group()

    def report(self):
        found = {}
        if self.profile:
            with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
                path = os.path.join(folder, "trace.json")
                self.profile.export_chrome_trace(path)
                found = overlap(read_json(path)["traceEvents"])
        last = self.losses[self.o["warmup"]:][-2 * N_BATCHES:]
        print(json.dumps({
            "per_s": self.n_items * self.o["steps"] / self.seconds,
            "loss": statistics.mean(loss.item() for loss in last), "pinned": self.pinned / 1e6,
            "copy_ms": found.get("copied", 0) / 1000 / max(1, self.o["traced"]),
            "hidden": found.get("hidden"), "unpinned": found.get("unpinned"),
            "device": self.peak / 1e6,
            "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "parameters": sum(p.numel() for p in self.model.parameters())}), flush=True)


def joined(spans):
    """Returns the union of [(from, to)] as spans in order."""
    made = []
    for begin, end in sorted(spans):
        if made and begin <= made[-1][1]:
            made[-1][1] = max(made[-1][1], end)
        else:
            made.append([begin, end])
    return made


def overlap(events):
    """Returns, from the events of a trace of torch.profiler: the microseconds in which memory was
    copied between host and card, the share of them in which a kernel ran, and the number of copies
    with memory that is not pinned. Kernels of NCCL count as communication, not as kernels."""
    spans = {"kernel": [], "gpu_memcpy": []}
    unpinned = 0
    for e in events:
        name = e.get("name", "")
        if e.get("ph") != "X" or e.get("cat") not in spans or "nccl" in name.lower():
            continue
        if e["cat"] == "gpu_memcpy" and not ("HtoD" in name or "DtoH" in name):
            continue
        unpinned += "Pageable" in name
        spans[e["cat"]].append((e["ts"], e["ts"] + e["dur"]))
    copies, kernels = joined(spans["gpu_memcpy"]), joined(spans["kernel"])
    copied = sum(end - begin for begin, end in copies)
    both = sum(max(0, min(end, to) - max(begin, at)) for begin, end in copies for at, to in kernels)
    return {"copied": copied, "hidden": both / copied if copied else None, "unpinned": unpinned}


def options(args, kind):
    sizes = dict(SIZES[args.network][args.device == "cpu"])
    if args.batch:
        sizes["batch"] = args.batch
    precision = args.precision or ("bf16" if args.device == "cuda" else "fp32")
    return {"kind": kind, "network": args.network, "device": args.device, "steps": args.steps,
            "warmup": args.warmup, "traced": args.traced, "precision": precision, **sizes}


def command(args, kind):
    return [sys.executable, "-B", os.path.abspath(__file__), "--run=" +
            json.dumps(options(args, kind))]


def peak_of(pid):
    """Returns the highest memory of a process so far, in MB; 0: the process has ended."""
    try:
        with open("/proc/%d/status" % pid, encoding="ascii") as f:
            return next((int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def run_weir(args, kind):
    with weir.Cluster(n_workers=1) as cluster:
        ps = cluster.processes["ps:0"]
        cluster.start_worker(0, command(args, kind))
        peak, deadline = 0, time.monotonic() + args.limit
        while True:
            peak = max(peak, peak_of(ps.popen.pid))
            try:
                cluster.wait(0.2)  # a failure is reported at once
                break
            except weir.Timeout:
                if time.monotonic() > deadline:
                    raise
        last = cluster.output("worker:0").strip().split("\n")[-1]  # warnings may precede it
        return {**json.loads(last), "ps": peak}


def run_pytorch(args, kind):
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
           "MASTER_PORT": str(free_ports(1)[0]), "GLOO_SOCKET_IFNAME": "lo"}
    process = subprocess.Popen(command(args, kind), env=env, stdout=subprocess.PIPE, text=True)
    return {**json.loads(wait_all([process], kind, args.limit)[0]), "ps": 0}


def report(args, rounds, product):
    o = options(args, "")
    item = "tokens/s" if args.network == "gpt" else "images/s"
    first = next(iter(rounds.values()))[0]
    print("\n%s; %s; %s of %.3g million parameters, batch %d, %s, %d steps, median of %d "
          "interleaved rounds:\n" % (product, machine(), args.network, first["parameters"] / 1e6,
                                     o["batch"], o["precision"], args.steps, args.rounds))
    print("| | %s | lowest to highest | of DDP | ms of copies in a step | of it hidden | copies "
          "not pinned | MB of the card | pinned MB | MB of the worker | MB of ps |\n|%s" % (
              item, " --- |" * 11))
    for kind, of in rounds.items():
        def median(name, of=of):
            values = [r[name] for r in of if r[name] is not None]
            return statistics.median(values) if values else None
        speeds, hidden, unpinned = [r["per_s"] for r in of], median("hidden"), median("unpinned")
        ratio = "-"
        if "ddp" in rounds:
            ratio = "%.3f" % statistics.median(
                a["per_s"] / b["per_s"] for a, b in zip(of, rounds["ddp"]))
        print("| %s | %.0f | %.0f to %.0f | %s | %s | %s | %s | %s | %.0f | %.0f | %.0f |" % (
            NAMES[kind], median("per_s"), min(speeds), max(speeds), ratio,
            "-" if hidden is None else "%.2f" % median("copy_ms"),
            "-" if hidden is None else "%.0f%%" % (100 * hidden),
            "-" if unpinned is None else "%d" % unpinned,
            "-" if args.device == "cpu" else "%.0f" % median("device"), median("pinned"),
            median("rss"), median("ps")))
    write_json({"machine": machine(), "product": product, "options": vars(args), "rounds": rounds},
               args.json)
    losses = {kind: statistics.median(r["loss"] for r in of) for kind, of in rounds.items()}
    print("\nmean of the last losses: %s" % ", ".join(
        "%s %.6f" % item for item in losses.items()))
    if max(losses.values()) - min(losses.values()) > ALLOW_LOSS * min(losses.values()):
        sys.exit("torch_gpu: these do not train alike, so their speeds cannot be compared")


def main():
    args = parse()
    if args.run:
        import torch
        import weir.torch  # noqa: F401
        run = Run(torch, json.loads(args.run))
        (run.weir if run.o["kind"] in WEIR else run.pytorch)()
        run.report()
        return
    kinds = args.kinds.split(",")
    if not set(kinds) <= set(NAMES):
        sys.exit("torch_gpu: --kinds is a list of %s" % ", ".join(NAMES))
    product = "ON THE CPU, to try the program"
    if args.device == "cuda":
        found = subprocess.run([sys.executable, "-c", "import torch; "
                                "print(torch.cuda.get_device_name(0))"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        if found.returncode:
            print("torch_gpu: PyTorch of %s sees no card" % sys.executable, file=sys.stderr)
            sys.exit(77)
        product = found.stdout.strip()
    rounds = {kind: [] for kind in kinds}
    for i, kind in in_turns(args.rounds, kinds):
        rounds[kind].append((run_weir if kind in WEIR else run_pytorch)(args, kind))
        print("round %d of %d: %-5s %9.1f a second" % (i + 1, args.rounds, kind,
                                                       rounds[kind][-1]["per_s"]),
              file=sys.stderr, flush=True)
    report(args, rounds, product)


if __name__ == "__main__":
    main()
