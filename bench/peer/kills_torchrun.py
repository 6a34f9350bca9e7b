"""A rank of DistributedDataParallel under torchrun, with a snapshot that all ranks load at their
start: the tutorial "Fault-tolerant Distributed Training with torchrun"."""
import os

import torch
from kill_model import Job
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

SNAPSHOT = "snapshot.pt"


def main():
    job = Job()
    distributed.init_process_group("gloo")
    rank, n = distributed.get_rank(), distributed.get_world_size()
    optimizer = torch.optim.Adam(job.model.parameters(), lr=1e-3)
    first = 0
    if os.path.exists(SNAPSHOT):
        found = torch.load(SNAPSHOT)
        job.model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        first = found["steps"]
    model = DistributedDataParallel(job.model)
    job.done(first, rank)
    for step in range(first, job.steps):
        optimizer.zero_grad()
        job.loss(model, job.batch(step, rank, n)).backward()
        optimizer.step()
        job.done(step + 1, rank)
        if rank == 0 and (step + 1) % job.save_steps == 0:
            torch.save({"model": job.model.state_dict(), "optimizer": optimizer.state_dict(),
                        "steps": step + 1}, SNAPSHOT + ".new")
            os.replace(SNAPSHOT + ".new", SNAPSHOT)
    job.end(rank)
    distributed.destroy_process_group()


main()
