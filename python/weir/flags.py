"""Reads the settings of a member from a program's command line."""
from __future__ import annotations

import sys
from typing import Optional, Sequence

from . import _library

# Settings of libweir/settings.c and of the rows FOR_JOB and FOR_ALL in flags/table.inc.
SETTINGS = (
    "ps_hosts", "worker_hosts", "n_workers", "task_index", "slurm_ps", "slurm_port", "join",
    "address", "tls_cert", "tls_key", "tls_ca", "token_file", "sync_mode", "replicas_to_aggregate",
    "staleness", "delay_compensation", "wire_dtype", "wire_step_ms", "shared_memory", "chunk_bytes",
    "train_steps", "batch_size", "seed", "optimizer", "learning_rate", "lr_schedule",
    "lr_warmup_steps", "lr_boundaries", "lr_decay", "lr_decay_steps", "clip_value", "clip_norm",
    "momentum", "decay", "beta1", "beta2", "epsilon", "weight_decay", "local_steps",
    "outer_optimizer", "outer_learning_rate", "outer_momentum", "own_local_steps", "data_name",
    "data_samples", "data_checksum", "arithmetic", "checkpoint_dir")


def flags(argv: Optional[Sequence[str]] = None, *, own: Sequence[str] = (),
          pass_on: bool = False) -> tuple[dict[str, str], list[str]]:
    """Splits a command line (default: sys.argv[1:]) into (settings, further arguments). Settings
    are written like flags of Weir's programs: --name=value, and --join without a value. own: names
    of the program's own flags, which belong to the further arguments. Raises Invalid for an unknown
    --flag, such as a mistyped setting. pass_on: unknown flags are further arguments instead."""
    found, others, unknown = {}, [], []
    for argument in sys.argv[1:] if argv is None else argv:
        name, _, value = argument[2:].partition("=")
        setting = name.replace("-", "_")
        if argument.startswith("--") and setting in SETTINGS:
            found[setting] = value if "=" in argument else "true"
            continue
        if argument.startswith("--") and name and name not in own and not pass_on:
            unknown.append(_library.unknown_setting(name, own))
        others.append(argument)
    if unknown:
        raise _library.Invalid("%s; name the program's own flags in weir.flags(own=[...])" %
                               "; ".join(unknown))
    return found, others
