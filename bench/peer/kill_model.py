"""The small model of the kill matrix in PyTorch, its data, and its digest."""
import hashlib
import time

import note
import torch
from torch import nn
from torch.nn import functional as F

BATCH, N_SAMPLES = 16, 4096


class Job:
    """Model and data of a run. Options: `steps`; `pace`, the seconds that a step lasts at least, as
    if a device computed the gradient; `save_steps`, the steps between two checkpoints."""

    def __init__(self):
        o = note.options()
        self.steps, self.pace, self.save_steps = o["steps"], o["pace"], o["save_steps"]
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        made = torch.Generator().manual_seed(2)
        self.x = torch.randn(N_SAMPLES, 64, generator=made)
        self.y = torch.randint(10, (N_SAMPLES,), generator=made)

    def batch(self, step, rank, n_ranks):
        """Returns the samples of a step, so that a repeated step reads the same ones."""
        first = (step * n_ranks + rank) * BATCH
        return [(first + i) % N_SAMPLES for i in range(BATCH)]

    def loss(self, model, samples):
        time.sleep(self.pace)
        return F.cross_entropy(model(self.x[samples]), self.y[samples])

    def done(self, n_steps, rank):
        """Notes that so many steps of the job are made."""
        note.note("step", n=n_steps, rank=rank)

    def end(self, rank):
        weights = b"".join(p.detach().contiguous().numpy().tobytes()
                           for p in self.model.parameters())
        note.note("end", rank=rank, digest=hashlib.sha256(weights).hexdigest())
