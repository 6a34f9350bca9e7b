"""Weir for programs with their own training loop. They push gradients and receive parameters.
Processes may be killed, join or leave during training. docs/guide/own-model.md is the manual.

Member: one member of a job, over libweir's C API.   weir.torch.Exchange: the same for PyTorch.
Cluster: servers and workers on this machine.        status: state of a running job.
reserve: GPUs of a shared machine for this process.   devices: the GPUs, and who holds them.
"""
from ._library import (Cancelled, Error, Invalid, Refused, Timeout, Unavailable, Unsupported, log,
                       version)
from ._tables import key
from .cluster import Cluster, program, status
from .flags import SETTINGS, flags
from .gpus import Reservation, devices, reserve
from .member import Event, Member, Step
from .progress import Progress

__version__ = "0.1.0"
__all__ = ["Cancelled", "Cluster", "Error", "Event", "Invalid", "Member", "Progress", "Refused",
           "Reservation", "SETTINGS", "Step", "Timeout", "Unavailable", "Unsupported", "devices",
           "flags", "key", "log", "program", "reserve", "status", "version"]
