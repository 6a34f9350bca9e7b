"""One member of bench/sparse.py: Weir's own worker program with a model file, whose embedding_bag
reads a sparse table. Prints its costs as JSON. samples() writes its data: the keys and labels of
sparse_run.py's distribution, for both members, in one file."""
import json
import math
import os
import re
import subprocess
import sys

import numpy
from common import STEP
from member_clock import Clock

SAMPLES = 65536
LOSS = re.compile(r" loss ([0-9.e+-]+)")


def samples(folder, o):
    """Writes train.npz and model.json."""
    draw = numpy.random.default_rng(1000)
    keys = numpy.exp(draw.random((SAMPLES, o["keys"])) * math.log(o["rows"])).astype(numpy.int64)
    keys = numpy.minimum(keys, o["rows"] - 1)
    weight = (keys * 2654435761 % 4096).astype(numpy.float32) / 2048 - 1
    numpy.savez(os.path.join(folder, "train.npz"), keys=keys,
                labels=(weight.sum(1) > 0).astype(numpy.uint8))
    hidden = [{"type": "dense", "units": o["width"]}, {"type": "relu"}]
    model = {"name": "sparse", "classes": 1, "inputs": {"keys": {"type": "keys"}}, "layers": [
        {"type": "embedding_bag", "input": "keys", "units": o["dim"], "max_rows": 2 * o["rows"],
         "settings": {"init": "uniform", "init_scale": 0.01}},
        {"type": "flatten"}, *hidden, *hidden, *hidden, {"type": "dense", "units": 1},
        {"type": "sigmoid_cross_entropy"}]}
    with open(os.path.join(folder, "model.json"), "w", encoding="ascii") as f:
        json.dump(model, f)


def main():
    o = json.loads(sys.argv[1])
    worker = subprocess.Popen(
        [os.path.join(os.environ["WEIR_PROGRAMS"], "worker"), "--data_dir=" + o["folder"],
         "--model=" + os.path.join(o["folder"], "model.json"), "--optimizer=adam",
         "--learning_rate=0.001", "--batch_size=%d" % o["batch"], "--train_steps=%d" % o["steps"],
         "--intra_op_threads=%d" % o["threads"], "--seed=1", "--progress=lines", "--log_every=1"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    clock, end = Clock(o["warmup"], o["servers"], worker.pid), None
    lines = []
    for line in worker.stderr:
        lines.append(line)
        found = STEP.search(line)
        if found:
            step = int(found.group(4))  # number of steps that are done
            clock.at(step, float(LOSS.search(line).group(1)))
            if step == o["steps"]:
                end = clock.now()
    if worker.wait() != 0:
        sys.exit("bench: the worker has failed:\n" + "".join(lines[-5:]))
    clock.report(end)


if __name__ == "__main__":
    main()
