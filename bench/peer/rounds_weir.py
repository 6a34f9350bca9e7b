"""One client of Weir: local steps of its own, which the server averages."""
import sys

import gpt_values
import note
import numpy
import shapes
import weir

LOCAL = 50  # steps of a round, for which one change of the values stands


def main():
    o, client = note.options(), int(sys.argv[1])
    wire = "bf16,bf16" if o["dtype"] == "bf16" else "fp32"  # of changes, and of values
    with weir.Member(ps_hosts=o["server"], n_workers=o["clients"], task_index=client,
                     train_steps=LOCAL * o["rounds"], batch_size=1, local_steps=LOCAL,
                     own_local_steps=True, outer_optimizer="sgd", outer_learning_rate=1,
                     wire_dtype=wire, shared_memory=o["shared_memory"]) as member:
        params = [member.param(name, values.shape, values)
                  for name, values in gpt_values.arrays(o["size"])]
        for step in member:
            note.note("round", round=step.step // LOCAL, client=client)
            for p in params:
                made = numpy.asarray(member.gradient(p))
                numpy.add(member.values(p), numpy.float32(shapes.change(client)), out=made)
                member.push_values(p, made, samples=step.n_samples)
        note.note("round", round=o["rounds"], client=client)
        shapes.check(float(numpy.asarray(member.values(params[0])).flat[0]),
                     gpt_values.first(o["size"]), o["rounds"], o["clients"])
    note.note("checked", client=client)


main()
