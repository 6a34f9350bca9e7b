"""A worker of Weir: docs/guide/own-model.md."""
import sys

import note
from kill_model import BATCH, N_SAMPLES, Job
import weir.torch


def main():
    rank, job, o = int(sys.argv[1]), Job(), note.options()
    exchange = weir.torch.Exchange(
        job.model, optimizer="adam", learning_rate=1e-3, train_steps=job.steps, batch_size=BATCH,
        ps_hosts=o["server"], n_workers=2, task_index=rank, chunk_bytes=16384, seed=1)
    for step in exchange:
        job.done(step.step, rank)
        job.loss(job.model, exchange.samples(N_SAMPLES)).backward()
    job.done(job.steps, rank)
    job.end(rank)


main()
