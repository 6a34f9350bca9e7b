"""Real ps and worker processes on loopback, for the tests in this folder.

Each process gets a free port on a loopback address that belongs to this test program. It reports
through a pipe when it listens (--ready_fd), every wait for it has a deadline, and its exit status
is checked: a process that the test did not collect fails the test. When a test fails, the harness
prints the output of all its processes. Children die with the test program.

A skip prints its reason. If a test of a file was skipped and no test failed, the program exits with
77, which is ctest's "skipped".
No test asserts a duration, because the machine may be busy. Tests wait for events. The deadline of
a wait is several times the time that a busy machine needs, so it only ends a test that hangs. To
hold a process back while something else happens, a test stops it (paused()).
Environment: WEIR_BIN is the folder of the programs, WEIR_TEST_SLOWNESS the factor by which they are
slower than usual, as under a sanitizer.
"""
from .case import Test
from .data import make_data, npy, pattern, write_idx, write_samples
from .files import (append_file, change_metadata, damage, read_bytes, read_json, read_safetensors,
                    read_source, read_text, safetensors_metadata, write_file)
from .job import Job
from .pace import Brake, Gate, paused, until, wait_still
from .process import AS_CHILD, Failure, Process, capture, check_output, free_ports, run
from .report import Result, main, run_one
from .settings import (BIN, CUDA_VISIBLE_DEVICES, FULL_DISK, LIBC, LIBRARY, LOOPBACK, MODELS,
                       OWN_MODELS, PATIENCE, PROTOCOL, SANITIZE, SKIPPED, SLOWNESS, SOURCE,
                       models_dir, package_env, program, source, term, use_package,
                       why_no_localhost)
from .wire import crc32c, join, keep, leave
