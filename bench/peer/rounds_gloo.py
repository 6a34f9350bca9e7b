"""One rank of PyTorch's gloo all-reduce over all parameters in one buffer, as DDP and FSDP keep
them in few large buffers."""
import gpt_values
import note
import shapes
import torch
from torch import distributed


def main():
    o = note.options()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    client, n = distributed.get_rank(), o["clients"]
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[o["dtype"]]
    values = torch.empty(shapes.count(o["size"]), dtype=dtype)
    at = 0
    for _, array in gpt_values.arrays(o["size"]):
        values[at:at + array.size] = torch.from_numpy(array.reshape(-1))
        at += array.size
    for i in range(o["rounds"]):
        note.note("round", round=i, client=client)
        values += shapes.change(client)
        distributed.all_reduce(values)
        values /= n
    note.note("round", round=o["rounds"], client=client)
    shapes.check(float(values[0]), gpt_values.first(), o["rounds"], n)
    distributed.barrier()
    distributed.destroy_process_group()
    note.note("checked", client=client)


main()
