"""A peer of hivemind: hivemind.Optimizer as in its quickstart. A step is one epoch of the group, in
which the peers together make the target batch. A peer that starts receives the state of others."""
import sys

import hivemind
import hivemind_dht
import torch
from kill_model import BATCH, Job


def main():
    peer, job = int(sys.argv[1]), Job()
    optimizer = hivemind.Optimizer(
        dht=hivemind_dht.join(peer), run_id="job", batch_size_per_step=BATCH,
        target_batch_size=3 * BATCH, use_local_updates=False, matchmaking_time=1.0,
        averaging_timeout=10.0, optimizer=torch.optim.Adam(job.model.parameters(), lr=1e-3))
    optimizer.load_state_from_peers()
    made, seen = 0, -1
    while optimizer.local_epoch < job.steps:
        if optimizer.local_epoch != seen:
            seen = optimizer.local_epoch
            job.done(seen, peer)
        optimizer.zero_grad()
        job.loss(job.model, job.batch(made, peer, 3)).backward()
        optimizer.step()
        made += 1
    job.done(optimizer.local_epoch, peer)
    job.end(peer)


if __name__ == "__main__":
    main()
