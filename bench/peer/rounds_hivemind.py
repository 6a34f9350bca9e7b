"""One peer of hivemind: DecentralizedAverager over all parameters."""
import sys

import gpt_module
import gpt_values
import hivemind
import hivemind_dht
import note
import shapes
import torch
from hivemind.compression import Float16Compression, NoCompression


def main():
    o, client = note.options(), int(sys.argv[1])
    torch.set_num_threads(1)
    tensors = [p.data for p in gpt_module.Parameters(o["size"], "fp32").parameters()]
    half = o["dtype"] == "bf16"  # hivemind has fp16
    codec = Float16Compression() if half else NoCompression()
    averager = hivemind.averaging.DecentralizedAverager(
        tensors, hivemind_dht.join(client), prefix="rounds", start=True, compression=codec,
        target_group_size=o["clients"], min_matchmaking_time=2.0)
    made = 0
    while made < o["rounds"]:
        note.note("round", round=made, client=client)
        with averager.get_tensors() as values:
            for v in values:
                v += shapes.change(client)
        while averager.step(timeout=120) is None:  # no group was found in time
            pass
        made += 1
    note.note("round", round=made, client=client)
    with averager.get_tensors() as values:
        shapes.check(float(values[0].flatten()[0]), gpt_values.first(), made,
                     o["clients"])
    note.note("checked", client=client)


if __name__ == "__main__":
    main()
