"""Virtual environments of the peers, with pinned versions."""
import os
import subprocess
import sys

from common import SOURCE

NUMPY = "numpy==2.4.6"
# PyTorch is large, so it is installed once. The environments in WITH_TORCH read it from there.
PINS = {
    "weir": [NUMPY],
    "torch": ["torch==2.15.0", NUMPY],
    "torchft": ["torchft==0.2.0"],
    "flower": ["flwr==1.42.0", NUMPY],
    "nvflare": ["nvflare==2.9.0", NUMPY],
    "hivemind": ["hivemind==1.1.12"],
    "tensorflow": ["tensorflow-cpu==2.21.0"],
    "paddle": ["paddlepaddle==2.6.2", "protobuf==4.25.3", "numpy==1.26.4"],  # for bench/sparse.py
}
WITH_TORCH = ("weir", "torchft", "nvflare", "hivemind")


def cache(folder):
    return os.path.abspath(folder or os.path.join(SOURCE, "build/peers"))


def python(folder, peer):
    return os.path.join(cache(folder), peer, "bin/python")


def reason(folder, peer):
    """Returns why a peer cannot run: the end of pip's output. None: its environment is complete."""
    log = os.path.join(cache(folder), peer + ".failed")
    if os.path.exists(log):
        with open(log, encoding="utf-8") as f:
            return f.read().strip()
    if not os.path.exists(os.path.join(cache(folder), peer, "complete")):
        return "its environment is missing; run bench/peers --setup " + peer
    return None


def last_error(text):
    """Returns the line of pip's output that names the fault."""
    lines = [l.strip() for l in text.splitlines() if l.strip()]
    faults = [l for l in lines if "error" in l.lower() and not l.startswith("note:")]
    return (faults or lines or ["no output"])[-1][:300]


def create(folder, peer):
    """Creates one environment. Returns the reason for a failure, or None."""
    home = os.path.join(cache(folder), peer)
    for old in (home + ".failed", os.path.join(home, "complete")):
        if os.path.exists(old):
            os.unlink(old)
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", home], check=True)
    if peer in WITH_TORCH:
        packages = "lib/python%d.%d/site-packages" % sys.version_info[:2]
        with open(os.path.join(home, packages, "torch.pth"), "w", encoding="utf-8") as f:
            f.write(os.path.join(cache(folder), "torch", packages) + "\n")
    argv = [os.path.join(home, "bin/pip"), "install", "-q", *PINS[peer]]
    with open(home + ".log", "w", encoding="utf-8") as log:
        done = subprocess.run(argv, check=False, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode == 0:
        open(os.path.join(home, "complete"), "w", encoding="utf-8").close()
        return None
    with open(home + ".log", encoding="utf-8") as log:
        why = "pip install %s: %s" % (" ".join(PINS[peer]), last_error(log.read()))
    with open(home + ".failed", "w", encoding="utf-8") as f:
        f.write(why + "\n")
    return why


def setup(folder, peers):
    os.makedirs(cache(folder), exist_ok=True)
    for peer in peers or PINS:
        if peer not in PINS:
            sys.exit("bench: there is no peer %s; there are %s" % (peer, ", ".join(PINS)))
        print("bench: %s: %s" % (peer, " ".join(PINS[peer])), flush=True)
        why = create(folder, peer)
        if why:
            print("bench: %s cannot be installed: %s" % (peer, why), flush=True)
