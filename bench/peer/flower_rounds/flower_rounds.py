"""Both sides of Flower: FedAvg without evaluation, arrays of numpy. numpy has no bf16, so fp16
stands for it, which has as many bytes."""
import gpt_values
import note
import numpy
import shapes
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid, context):
    o = note.options()
    dtype = {"fp32": numpy.float32, "bf16": numpy.float16}[o["dtype"]]
    arrays = [values.astype(dtype, copy=False) for _, values in gpt_values.arrays(o["size"])]
    n = o["clients"]
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=n,
                      min_available_nodes=n)

    def at_round(number, _arrays):
        note.note("round", round=number, client=0)

    result = strategy.start(grid=grid, initial_arrays=ArrayRecord(arrays), num_rounds=o["rounds"],
                            evaluate_fn=at_round)
    shapes.check(float(result.arrays.to_numpy_ndarrays()[0].flat[0]), gpt_values.first(),
                 o["rounds"], n)
    for i in range(n):
        note.note("checked", client=i)


@client.train()
def train(message, context):
    at = shapes.change(context.node_config["partition-id"])
    arrays = message.content["arrays"].to_numpy_ndarrays()
    arrays = [array + array.dtype.type(at) for array in arrays]
    return Message(RecordDict({"arrays": ArrayRecord(arrays),
                               "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)
