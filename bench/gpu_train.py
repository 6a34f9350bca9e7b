"""Measures training of the deep MNIST CNN on one GPU beside PyTorch: same card, run and network.

  weir       one worker without servers: training stays on the card, each step one CUDA graph
  launches   the same with --cuda_graphs=off (--more)
  plain      the same with --gpu_tuning=none (--tuning=NAME,... or --tuning=all)
  NAME       the same with only the tuning NAME, which shows the gain of each tuning. Two tunings
             are for workers with servers: capture is a default, so its row is ps1 without capture;
             the row of updates is ps1 with updates
  tuned      the same with all tunings (--tuning=all)
  eager      PyTorch with its defaults
  compiled   PyTorch with torch.compile(mode="reduce-overhead"), that is with CUDA graphs, and its
             fused Adam
  ps1        one worker and one ps on this host, --local_steps=1 as is the default

It also trains on the original MNIST with fixed schedules (RECIPES), once for each of --seeds seeds,
and reports mean accuracy and time of training. No run looks at the test set before its end:

  mnist_fast  the network of tuomaso/train_mnist_fast: 1 pass in batches of 256, Adam, one_cycle
  deep_mnist  the same schedule, 2 passes in batches of 512, other rates

--only_recipes measures nothing else.

The network, batch, optimizer and precision are the same on both sides (bench/train.py). PyTorch has
its images on the card, too, and reads no loss while the clock runs. PyTorch's first steps
(--warm_up) do not count. The figure of Weir is images_per_second in the worker's summary: it
excludes the first 50 steps, which load kernels and capture the graph, and its clock stops when the
last parameters are on the host. The seconds of the recipes include all steps. Rounds of the rows
alternate, every second one in reverse order, and the results are medians.

All rows run on one card, which the report names: that of --gpu, or the first one that no process
uses. Each run receives the UUID of the card, and reports its device afterwards. A run that used
another card, or the CPU, ends the program with status 1 and a line.

The program reports missing parts (PyTorch, PyTorch's CUDA, the original MNIST) and omits their
rows. The exit status is 77 if Weir or a card is missing, because nothing can be measured. --cpu
runs all parts on the CPU, in fp32, only to try this program; the recipes' accuracy is meaningful
there, too.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

from common import SOURCE, in_turns, loopback_hosts, machine, read_json, wait_all
import common
from train import PARAMETERS, network, read_idx

TARGET = 0.99  # mean accuracy of the recipes
TARGET_SECONDS = 0.3
RECIPES = {  # name: (model, parameters, batch, passes, flags)
    "mnist_fast": (os.path.join(SOURCE, "bench/models/mnist_fast.json"), 215194, 256, 1,
                   ("--learning_rate=0.01", "--beta1=0.7", "--beta2=0.9",
                    "--lr_schedule=one_cycle", "--mean=0.1307", "--std=0.3081")),
    "deep_mnist": ("deep_mnist", PARAMETERS, 512, 2,
                   ("--learning_rate=0.003", "--lr_schedule=one_cycle")),
}


def read_data(folder, part, torch, device):
    """Reads gzipped or plain files; returns (images, labels) as tensors on the device."""
    def one(kind):
        path = os.path.join(folder, part + kind)
        if os.path.exists(path):
            with open(path, "rb") as f:
                content = f.read()
            n_dims = content[3]
            dims = [int.from_bytes(content[4 + 4 * i:8 + 4 * i], "big") for i in range(n_dims)]
            return dims, content[4 + 4 * n_dims:]
        return read_idx(path + ".gz")
    dims, pixels = one("-images-idx3-ubyte")
    labels = one("-labels-idx1-ubyte")[1]
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(dims[0], 1, *dims[1:])
    labels = torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()
    return images.to(device), labels.to(device)


def torch_main(args):
    """Runs one PyTorch process; prints images, seconds and the last loss as JSON."""
    import torch
    device = "cpu" if args.cpu else "cuda"
    torch.manual_seed(0)
    if args.precision == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    else:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    images, labels = read_data(args.data_dir, "train", torch, device)
    model = network(torch).to(device)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS
    compiled = args.torch == "compiled"
    more = {"fused": True, "capturable": True} if compiled and not args.cpu else {}
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate, **more)
    loss_of = torch.nn.CrossEntropyLoss()
    bf16 = torch.autocast(device, dtype=torch.bfloat16, enabled=args.precision == "bf16")

    def forward(x, y):
        with bf16:
            return loss_of(model(x.float() / 255), y)

    if compiled:
        forward = torch.compile(forward, mode="reduce-overhead")
    n = images.shape[0]
    order = torch.randperm(n, device=device)

    def steps(count):
        for step in range(count):
            first = step * args.batch_size % (n - args.batch_size)
            index = order[first:first + args.batch_size]
            loss = forward(images[index], labels[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        return loss.item()  # waits for the device

    steps(args.warm_up)
    start = time.monotonic()
    loss = steps(args.steps)
    seconds = time.monotonic() - start
    print(json.dumps({"images": args.steps * args.batch_size, "seconds": seconds, "loss": loss,
                      **torch_device(torch, model)}))


def torch_device(torch, model):
    """Returns the device of a model. The UUID is empty for a MIG instance or an old PyTorch."""
    types = sorted({p.device.type for p in model.parameters()})
    if types != ["cuda"]:
        return {"device_types": types}
    card = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {"device_types": types, "product": card.name, "uuid": str(getattr(card, "uuid", "")),
            "peak_bytes": torch.cuda.max_memory_allocated()}


def check_torch(args, how, result):
    """Ends the program if a run of PyTorch was not on the card."""
    def wrong(what):
        sys.exit("gpu_train: PyTorch (%s) did not train on %s: %s" % (how, label(args), what))
    if args.cpu or args.torch_cpu:
        return
    if result["device_types"] != ["cuda"]:
        wrong("its parameters were on %s" % ", ".join(result["device_types"]))
    if result["product"] != args.card["product"]:
        wrong("its card was a '%s'" % result["product"])
    if result["uuid"] and not args.card["mig"] and result["uuid"] not in args.card["uuid"]:
        wrong("its card was GPU-%s" % result["uuid"])
    if result["peak_bytes"] < 4 * PARAMETERS:
        wrong("it took %d bytes of the card's memory, less than the parameters' %d" %
              (result["peak_bytes"], 4 * PARAMETERS))


def run_torch(args, how):
    argv = [args.python, "-B", os.path.abspath(__file__), "--torch=" + how,
            "--steps=%d" % args.steps, "--warm_up=%d" % args.warm_up,
            "--batch_size=%d" % args.batch_size, "--learning_rate=%g" % args.learning_rate,
            "--precision=" + args.precision, "--data_dir=" + args.data_dir]
    argv += ["--cpu"] * (args.cpu or args.torch_cpu)
    env = dict(os.environ, **({} if args.cpu else {"CUDA_VISIBLE_DEVICES": args.card["uuid"]}))
    process = subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, env=env)
    (output,) = wait_all([process], "PyTorch, " + how, args.limit)
    result = json.loads(output.strip().split("\n")[-1])
    check_torch(args, how, result)
    return result["images"] / result["seconds"]


def weir_argv(args, path, *flags):
    device = ["--gpus=none"]
    if not args.cpu:
        device = ["--gpus=" + args.card["uuid"], "--precision=" + args.precision]
    return [os.path.join(args.bin, "worker"), "--optimizer=adam",
            "--models_dir=" + os.path.join(SOURCE, "examples/models"), "--summary_json=" + path,
            "--progress=lines", "--log_every=1000", *device, *flags, *args.worker_flag]


def run_weir(args, *flags, ps=False):
    """Runs Weir; returns the worker's summary."""
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        path = os.path.join(folder, "summary.json")
        argvs = [weir_argv(args, path, *flags)]
        if ps:
            hosts = [*loopback_hosts(1), "--task_index=0"]
            argvs = [argvs[0] + hosts, [os.path.join(args.bin, "ps"), *hosts]]
        lines = common.run_weir(argvs, args.limit)[0]
        summary = read_json(path)
    if not args.cpu:
        check_weir(args, summary, lines, ps)
    return summary


def check_work(summary, parameters, images):
    if summary["parameters"] != parameters or summary["images"] != images:
        sys.exit("gpu_train: Weir trained something else: %s" % summary)


def check_weir(args, summary, lines, ps):
    """Ends the program if a run of Weir was not on the card."""
    used = [t.get("uuid") or t["device_type"] for t in summary["towers"]]
    if used != [args.card["uuid"]]:
        sys.exit("gpu_train: Weir did not train on %s: its towers were on %s; its lines:\n%s" %
                 (label(args), ", ".join(used), lines))
    if not ps and "training runs on cuda" not in lines:
        sys.exit("gpu_train: Weir did not keep its training on %s: the bench measures the card, "
                 "not transfers; its lines:\n%s" % (label(args), lines))


def weir_rate(args, *flags, ps=False):
    summary = run_weir(args, "--model=deep_mnist", "--learning_rate=%g" % args.learning_rate,
                       "--data_dir=" + args.data_dir, "--batch_size=%d" % args.batch_size,
                       "--train_steps=%d" % args.steps, *flags, ps=ps)
    check_work(summary, PARAMETERS, args.steps * args.batch_size)
    if not args.cpu and summary["warm_up_images"] == 0:
        print("gpu_train: --steps=%d: too few for Weir to leave out its first ones: the figures "
              "include them" % args.steps, file=sys.stderr)
    return summary["images_per_second"]


def train_recipe(args, name, seed):
    """Returns (accuracy, seconds of training, steps)."""
    model, parameters, batch, passes, flags = RECIPES[name]
    summary = run_weir(args, "--model=" + model, "--data_dir=" + args.mnist_dir,
                       "--batch_size=%d" % batch, "--epochs=%d" % passes, "--seed=%d" % seed,
                       *flags)
    check_work(summary, parameters, summary["global_step"] * batch)
    return summary["test_accuracy"], summary["elapsed_seconds"], summary["global_step"]


def measure_recipes(args):
    """Returns {recipe: [(accuracy, seconds, steps) of each seed]}."""
    results = {name: [] for name in RECIPES}
    for i, name in in_turns(args.seeds, RECIPES):
        results[name].append(train_recipe(args, name, i + 1))
        print("seed %d of %d: %s accuracy %.4f, %.3f s" %
              (i + 1, args.seeds, name, *results[name][-1][:2]), file=sys.stderr, flush=True)
    return results


def report_recipes(args, results):
    """Prints a table, and returns its figures."""
    figures = {}
    print("\n%s; %s; original MNIST, fixed schedules, mean of %d seeds:\n" %
          (place(args), machine(), args.seeds))
    print("| | accuracy | lowest to highest | seconds | fastest to slowest | steps |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, runs in results.items():
        accuracy, seconds, steps = zip(*runs)
        figures[name] = {"accuracy": accuracy, "seconds": seconds, "steps": steps[0],
                         "mean_accuracy": statistics.fmean(accuracy),
                         "mean_seconds": statistics.fmean(seconds)}
        print("| %s | %.4f | %.4f to %.4f | %.3f | %.3f to %.3f | %d |" %
              (name, figures[name]["mean_accuracy"], min(accuracy), max(accuracy),
               figures[name]["mean_seconds"], min(seconds), max(seconds), steps[0]))
    good = [f["mean_seconds"] for f in figures.values() if f["mean_accuracy"] >= TARGET]
    print("\ntarget: a mean accuracy of %g in at most %g s of training: %s" %
          (TARGET, TARGET_SECONDS, "%.3f s" % min(good) if good else "accuracy not reached"))
    return figures


def place(args):
    return "ON CPUS, to try the program" if args.cpu else label(args)


def label(args):
    return "%s (%s, %s)" % tuple(args.card[k] for k in ("product", "uuid", "pci_bus_id"))


def find_card(args):
    """Returns the card to measure, from `worker --list_devices=json`, or None and the reason."""
    listed = subprocess.run([os.path.join(args.bin, "worker"), "--list_devices=json"],
                            stdout=subprocess.PIPE, text=True, check=True)
    listed = json.loads(listed.stdout)
    cards = [d for d in listed["devices"] if d["device_type"] == "GPU"]
    if not cards:
        return None, listed["why_no_gpu"]
    named = [c for i, c in enumerate(cards)
             if args.gpu and (args.gpu == str(i) or c["uuid"].startswith(args.gpu))]
    if args.gpu and len(named) != 1:
        sys.exit("gpu_train: --gpu=%s names %d of the cards that CUDA shows; there are %s" %
                 (args.gpu, len(named), ", ".join(c["uuid"] for c in cards)))
    card = named[0] if named else next((c for c in cards if not c["n_processes"]), cards[0])
    if card["n_processes"]:
        print("gpu_train: other programs use this card, too, so the figures are low: process %s" %
              ", ".join(map(str, card["processes"])), file=sys.stderr)
    return card, None


def what_is_there(args):
    """Returns the names of the parts that can be measured; prints a line for each missing part."""
    def missing(what):
        print("gpu_train: missing: " + what, file=sys.stderr)
    there = set()
    if not os.path.exists(os.path.join(args.bin, "worker")):
        missing("%s/worker; build first" % args.bin)
        return there
    if not args.cpu:
        args.card, why = find_card(args)
        if args.card is None:
            missing("an NVIDIA card: " + why)
            return there
        print("gpu_train: measures on " + label(args), file=sys.stderr)
    there.add("weir")
    probe = "import torch; print(torch.__version__, torch.cuda.is_available() or %d, " \
        "hasattr(torch, 'compile'))" % (args.cpu or args.torch_cpu)
    torch = subprocess.run([args.python, "-c", probe], text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, check=False)
    if torch.returncode != 0:
        missing("PyTorch for %s" % args.python)
    elif torch.stdout.split()[1] in ("False", "0"):
        missing("a PyTorch with CUDA that sees the card; %s has %s" %
                (args.python, torch.stdout.split()[0]))
    else:
        there.add("eager")
        if torch.stdout.split()[2] == "True":
            there.add("compiled")
        else:
            missing("torch.compile: PyTorch %s has none" % torch.stdout.split()[0])
    if any(os.path.exists(os.path.join(args.mnist_dir, "t10k-images-idx3-ubyte" + end))
           for end in ("", ".gz")):
        there.add("mnist")
    else:
        missing("the original MNIST in %s (scripts/get_mnist)" % args.mnist_dir)
    return there


def parse():
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    p = argparse.ArgumentParser(prog="bench/gpu_train.py", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--warm_up", type=int, default=50, help="PyTorch's steps before the clock")
    p.add_argument("--batch_size", type=int, default=512)
    p.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="tf32")
    p.add_argument("--learning_rate", type=float, default=0.001)
    p.add_argument("--seeds", type=int, default=10, help="runs of each recipe; 0: none")
    p.add_argument("--only_recipes", action="store_true", help="measures only the recipes")
    p.add_argument("--gpu", help="CUDA's number of the card, or a beginning of its UUID")
    p.add_argument("--more", action="store_true", help="also Weir without graphs")
    p.add_argument("--tuning", default="", metavar="NAME,...|all",
                   help="also Weir with each of these tunings")
    p.add_argument("--cpu", action="store_true",
                   help="Weir and PyTorch on the CPU: only to try this program without a card")
    p.add_argument("--torch_cpu", action="store_true",
                   help="PyTorch on the CPU: only to try this program, where the card is emulated")
    p.add_argument("--data_dir", default="/usr/share/datasets/fashion-mnist")
    p.add_argument("--mnist_dir", default=os.path.join(data, "weir/mnist"))
    p.add_argument("--bin", default=os.path.join(SOURCE, "build/bin"))
    p.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    p.add_argument("--worker_flag", action="append", default=[], help="passed on to worker")
    p.add_argument("--limit", type=int, default=600, help="seconds for one run")
    p.add_argument("--torch", choices=("eager", "compiled"), help=argparse.SUPPRESS)
    return p.parse_args()


def tuning_names(args):
    """Returns the tunings to compare; `all` stands for the worker's own list."""
    if args.tuning != "all":
        return [name for name in args.tuning.split(",") if name]
    worker = subprocess.run([os.path.join(args.bin, "worker"), "--gpu_tuning=?"], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    found = re.search(r"is not one of (.*), all, auto and none", worker.stdout)
    if not found:
        sys.exit("gpu_train: %s/worker does not list the values of --gpu_tuning" % args.bin)
    return found.group(1).split(", ")


def measure(args, there):
    contestants = {}
    contestants["weir"] = lambda: weir_rate(args)
    contestants["ps1"] = lambda: weir_rate(args, ps=True)
    if args.more:
        contestants["launches"] = lambda: weir_rate(args, "--cuda_graphs=off")
    if args.tuning:
        contestants["plain"] = lambda: weir_rate(args, "--gpu_tuning=none")
    for name in tuning_names(args):
        with_ps = {"capture": "auto,-capture", "updates": "auto,updates"}
        flag = "--gpu_tuning=" + with_ps.get(name, name)
        contestants[name] = lambda flag=flag, ps=name in with_ps: weir_rate(args, flag, ps=ps)
    if args.tuning == "all":
        contestants["tuned"] = lambda: weir_rate(args, "--gpu_tuning=all")
    for how in ("eager", "compiled"):
        if how in there:
            contestants[how] = lambda how=how: run_torch(args, how)
    figures = {name: [] for name in contestants}
    for i, name in in_turns(args.rounds, contestants):
        figures[name].append(contestants[name]())
        print("round %d of %d: %-8s %9.0f images/s" %
              (i + 1, args.rounds, name, figures[name][-1]), file=sys.stderr, flush=True)
    return figures


def report(args, figures):
    """Prints tables of the rows, and returns their medians."""
    median = {name: statistics.median(values) for name, values in figures.items()}
    print("\n%s; %s; batch %d, %s, %d steps, median of %d interleaved rounds:\n" %
          (place(args), machine(), args.batch_size, args.precision, args.steps, args.rounds))
    print("| | images/s | lowest to highest | Weir is so many times |\n| --- | --- | --- | --- |")
    for name, values in figures.items():
        print("| %s | %.0f | %.0f to %.0f | %s |" %
              (name, median[name], min(values), max(values),
               "%.2f" % (median["weir"] / median[name])))
    for name, what, wanted in (("eager", "times PyTorch eager", 2.0),
                               ("compiled", "times torch.compile with CUDA graphs", 1.2)):
        if name in median:
            print("\ntarget: at least %.1f %s: %.2f" %
                  (wanted, what, median["weir"] / median[name]))
    print("\ntarget: with a server at least 0.80 of without: %.2f" %
          (median["ps1"] / median["weir"]))
    return median


def main():
    args = parse()
    args.card = None
    if args.torch:
        torch_main(args)
        return
    there = what_is_there(args)
    if "weir" not in there or (args.only_recipes and "mnist" not in there):
        sys.exit(77)
    result = {"machine": machine(), "batch_size": args.batch_size, "precision": args.precision,
              "cpu": args.cpu, "card": args.card}
    if "mnist" in there and args.seeds > 0:
        result["recipes"] = report_recipes(args, measure_recipes(args))
    if not args.only_recipes:
        result["images_per_second"] = measure(args, there)
        result["median"] = report(args, result["images_per_second"])
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main()
