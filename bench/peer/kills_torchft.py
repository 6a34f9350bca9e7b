"""A replica group of torchft: its example train_ddp.py. A group that returns receives the state
from a group that lives, so no checkpoint is needed as long as one lives. Each group also writes
one every `save_steps` steps, as the example does, and reads it if it starts."""
import os
import sys
from datetime import timedelta

import torch
from kill_model import Job
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo


def main():
    job, group = Job(), int(sys.argv[1])
    rule = torch.optim.Adam(job.model.parameters(), lr=1e-3)

    def load(state):
        job.model.load_state_dict(state["model"])
        rule.load_state_dict(state["optimizer"])

    def state():
        return {"model": job.model.state_dict(), "optimizer": rule.state_dict()}

    manager = Manager(pg=ProcessGroupGloo(timeout=timedelta(seconds=5)), min_replica_size=1,
                      load_state_dict=load, state_dict=state, replica_id="group_%d" % group,
                      timeout=timedelta(seconds=10), quorum_timeout=timedelta(seconds=10))
    model = DistributedDataParallel(manager, job.model)
    optimizer = Optimizer(manager, rule)
    path = "group-%d.pt" % group
    if os.path.exists(path):
        found = torch.load(path)
        load(found)
        manager.load_state_dict(found["manager"])
    job.done(manager.current_step(), group)
    while manager.current_step() < job.steps:
        step = manager.current_step()
        optimizer.zero_grad()
        job.loss(model, job.batch(step, group, 2)).backward()
        optimizer.step()
        job.done(manager.current_step(), group)
        if manager.current_step() % job.save_steps == 0:
            torch.save({**state(), "manager": manager.state_dict()}, path + ".new")
            os.replace(path + ".new", path)
    job.end(group)
    manager.shutdown(wait=False)


main()
