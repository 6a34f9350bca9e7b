"""One peer of hivemind: DecentralizedAverager over all parameters."""
import sys

import gpt_module
import hivemind
import note
import shapes
import torch


def main():
    o, client = note.options(), int(sys.argv[1])
    torch.set_num_threads(1)
    tensors = [p.data for p in gpt_module.Parameters(o["size"], o["dtype"]).parameters()]
    dht = hivemind.DHT(start=True, initial_peers=note.first_peers(client))
    note.leave_first_peer(client, [str(a) for a in dht.get_visible_maddrs()])
    codec = hivemind.NoCompression() if o["dtype"] == "fp32" else hivemind.Float16Compression()
    averager = hivemind.averaging.DecentralizedAverager(
        tensors, dht, prefix="rounds", start=True, target_group_size=o["clients"],
        compression=codec)
    for i in range(o["rounds"]):
        note.note("round", round=i, client=client)
        with averager.get_tensors() as values:
            for v in values:
                v += shapes.change(client)
        averager.step(timeout=120)
    note.note("round", round=o["rounds"], client=client)
    with averager.get_tensors() as values:
        shapes.check(float(values[0].flatten()[0]), 0, o["rounds"], o["clients"])
    note.note("checked", client=client)


main()
