"""One process of bench/sparse.py's kind paddle: the server or a trainer of PaddlePaddle 2.6.2, in
mode async: a server updates rows and layers when gradients arrive. It has the net of sparse_run.py,
and samples of the same distribution. A trainer prints its costs as JSON.

The rows have the rule of PaddlePaddle's default accessor. Mode sync ended with a segmentation fault
in the trainers, so it is not measured."""
import contextlib
import json
import math
import os
import sys
import warnings

import numpy
from member_clock import Clock

KEYS_AHEAD = 64  # batches that are made before the timed steps, and then used in turn


def samples(o):
    """Returns batches of (keys, labels); keys: (batch * keys, 1) int64, labels: (batch, 1)."""
    draw = numpy.random.default_rng(1000 + o["rank"])
    for _ in range(KEYS_AHEAD):
        keys = numpy.exp(draw.random((o["batch"], o["keys"])) * math.log(o["rows"]))
        keys = numpy.minimum(keys.astype(numpy.int64), o["rows"] - 1)
        weight = (keys * 2654435761 % 4096).astype(numpy.float32) / 2048 - 1
        yield keys.reshape(-1, 1), (weight.sum(1, keepdims=True) > 0).astype(numpy.float32)


def net(paddle, o):
    """Returns the loss of the net."""
    def uniform(limit):
        return paddle.ParamAttr(initializer=paddle.nn.initializer.Uniform(-limit, limit))

    keys = paddle.static.data("keys", [None, 1], "int64")
    labels = paddle.static.data("labels", [None, 1], "float32")
    rows = paddle.static.nn.sparse_embedding(keys, [o["rows"], o["dim"]])
    width = o["keys"] * o["dim"]
    x = paddle.reshape(rows, [-1, width])
    for _ in range(3):  # PyTorch's first values
        limit = 1 / math.sqrt(width)
        x = paddle.static.nn.fc(x, o["width"], weight_attr=uniform(limit),
                                bias_attr=uniform(limit), activation="relu")
        width = o["width"]
    x = paddle.static.nn.fc(x, 1)
    return paddle.mean(paddle.nn.functional.binary_cross_entropy_with_logits(x, labels))


def train(paddle, fleet, loss, o, out):
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    clock, batches = Clock(o["warmup"], o["servers"]), list(samples(o))
    for step in range(o["steps"]):
        clock.at(step)
        keys, labels = batches[step % KEYS_AHEAD]
        found = executor.run(paddle.static.default_main_program(), fetch_list=[loss],
                             feed={"keys": keys, "labels": labels})
        clock.at(-1, float(found[0]))
    with contextlib.redirect_stdout(out):
        clock.report()
    fleet.stop_worker()


def main():
    o = json.loads(sys.argv[1])
    os.environ.update({
        "PADDLE_PSERVERS_IP_PORT_LIST": o["addresses"][0], "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ENDPOINTS": ",".join(o["addresses"][1:]), "POD_IP": "127.0.0.1",
        "PADDLE_TRAINER_ID": str(max(o["rank"], 0)),
        "PADDLE_PORT": o["addresses"][o["rank"] + 1].rpartition(":")[2],
        "TRAINING_ROLE": "PSERVER" if o["rank"] < 0 else "TRAINER"})
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # for the texts that PaddlePaddle prints
    warnings.simplefilter("ignore")
    import paddle
    from paddle.distributed import fleet
    paddle.enable_static()
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
    loss = net(paddle, o)
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    rule = paddle.optimizer.Adam(1e-3, lazy_mode=True)
    fleet.distributed_optimizer(rule, strategy).minimize(loss)
    if o["rank"] < 0:
        fleet.init_server()
        fleet.run_server()
    else:
        train(paddle, fleet, loss, o, out)


if __name__ == "__main__":
    main()
