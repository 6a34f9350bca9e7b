"""Both sides of Flower: a small model by FedAvg; a round has one step of each client. The server
writes its arrays every `save_steps` rounds, and a ServerApp that starts continues from them."""
import hashlib
import os
import time

import note
import numpy
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

server = ServerApp()
client = ClientApp()


def saved():
    return os.path.join(os.path.dirname(os.environ["PEERS_NOTES"]), "saved.npz")


@server.main()
def main(grid, context):
    o = note.options()
    first, arrays = 0, [numpy.zeros(s, numpy.float32) for s in ((64, 128), (128,), (128, 10))]
    if os.path.exists(saved()):
        with numpy.load(saved()) as found:
            first, arrays = int(found["first"]), [found["a%d" % i] for i in range(3)]
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=2,
                      min_available_nodes=2)

    def at_round(number, record):
        note.note("step", n=first + number, rank=0)
        if number and (first + number) % o["save_steps"] == 0:
            now = {"a%d" % i: a for i, a in enumerate(record.to_numpy_ndarrays())}
            numpy.savez(saved() + ".new.npz", first=first + number, **now)
            os.replace(saved() + ".new.npz", saved())

    result = strategy.start(grid=grid, initial_arrays=ArrayRecord(arrays), evaluate_fn=at_round,
                            num_rounds=o["steps"] - first)
    text = b"".join(a.tobytes() for a in result.arrays.to_numpy_ndarrays())
    for rank in range(2):
        note.note("end", rank=rank, digest=hashlib.sha256(text).hexdigest())


@client.train()
def train(message, context):
    time.sleep(note.options()["pace"])
    arrays = message.content["arrays"].to_numpy_ndarrays()
    made = numpy.random.default_rng([context.node_config["partition-id"],
                                     int(message.content["config"]["server-round"])])
    arrays = [a - numpy.float32(0.01) * made.normal(0, 1, a.shape).astype(a.dtype) for a in arrays]
    return Message(RecordDict({"arrays": ArrayRecord(arrays),
                               "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)
