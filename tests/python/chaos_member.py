"""A worker of tests/chaos --tables: a member of a job with a table, whose rows table_trainer.py
computes. It has those flags and outputs of weir-worker that tests/chaos uses: --summary_json with a
digest of all rows, --record_samples, SIGTERM to leave, and exit status 138 if it should be started
again."""
import array
import json
import os
import random
import signal
import sys
import threading
import time

import table_trainer as trainer
import weir

OWN = ("summary_json", "record_samples", "push_delay_ms", "job_name")
RETRY = 138


def leave_at_sigterm(m):
    """A handler must not wait, so a thread sends the request."""
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=m.leave_soon).start())


def train(m, own):
    dim, batch = trainer.DIM, trainer.BATCH
    bias = m.param("bias", (3,))
    table = m.table("words", dim, 1000, optimizer="adagrad", learning_rate=trainer.RATE,
                    epsilon=trainer.EPSILON, init_scale=0.5, buckets=trainer.BUCKETS, step_rows=64)
    leave_at_sigterm(m)
    step = None
    with open(own["record_samples"], "ab", buffering=0) as record:
        for step in m:
            record.write(b"%d %d %d %d\n" % (step.generation, step.step, step.position,
                                             step.n_samples))
            print("training step", step.step, flush=True)
            samples = m.samples(step, trainer.N_SAMPLES)
            rows = m.lookup(table, trainer.keys_of(samples))
            if rows is None:
                continue
            if step.step % 3:  # in some steps the next lookup has to send requests
                after = step.position + step.n_members * batch
                m.next_keys(table, trainer.keys_of(
                    m.sample(trainer.N_SAMPLES, after + i) for i in range(batch)))
            time.sleep(random.random() * int(own.get("push_delay_ms", 0)) / 1000)
            trainer.push(m, table, rows.cast("B").cast("f"), samples)
            m.push(bias, array.array("f", [1, 2, samples[0]]), samples=batch)
    print("result", m.result, flush=True)
    if m.result == "done":
        rows = m.lookup(table, array.array("Q", [trainer.key_of(w)
                                                 for w in range(trainer.N_WORDS)]))
        summary = {"parameters_sha256": trainer.digest(rows.cast("B").cast("f")), "loss": 0.0,
                   "global_step": step.train_steps if step else 0}
        part = own["summary_json"] + ".part"
        with open(part, "w", encoding="ascii") as f:
            json.dump(summary, f)
        os.replace(part, own["summary_json"])


def main():
    settings, rest = weir.flags(own=OWN)
    own = dict(r[2:].split("=", 1) for r in rest)
    try:
        with weir.Member(**settings) as m:
            train(m, own)
    except weir.Unavailable as error:
        print("member:", error, flush=True)
        sys.exit(RETRY)


if __name__ == "__main__":
    main()
