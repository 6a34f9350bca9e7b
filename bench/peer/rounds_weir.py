"""One client of Weir: local steps of its own, which the server averages. Like the clients of gloo
and hivemind it has no second copy of the parameters: it changes one parameter after the other in an
array that it uses for all of them."""
import functools
import math
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
        params = [(member.param(name, shape, functools.partial(gpt_values.array, i, shape)), shape)
                  for i, (name, shape) in enumerate(shapes.shapes(o["size"]))]
        room = numpy.empty(max(math.prod(shape) for _, shape in params), numpy.float32)
        for step in member:
            note.note("round", round=step.step // LOCAL, client=client)
            for p, shape in params:
                made = room[:math.prod(shape)].reshape(shape)
                numpy.add(member.values(p), numpy.float32(shapes.change(client)), out=made)
                member.push_values(p, made, samples=step.n_samples)
        note.note("round", round=o["rounds"], client=client)
        shapes.check(float(numpy.asarray(member.values(params[0][0])).flat[0]),
                     gpt_values.first(), o["rounds"], o["clients"])
    note.note("checked", client=client)


main()
