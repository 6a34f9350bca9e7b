/* worker/self_test/self_test.h - --self_test: checks that each device of this machine computes
 * correctly. Every GPU that CUDA shows (or --gpus names) and the CPU run a small training step,
 * which is compared with the same step in plain double precision; so a faulty CPU backend is found,
 * too. For each device one line is printed to stdout: "GPU is running!" with the time and the
 * memory, or the exact reason of the failure. On request the results are printed as JSON instead.
 *
 * Each device is tested in a process of its own. So a driver that crashes or hangs ends only the
 * test of that device, and the process has released its GPU memory when the line is printed. The
 * test reserves no GPU, so it also runs while other users use the GPUs.
 * Owns:    its processes. Threads: none; call before the first thread starts.
 * Errors:  ST_NOT_FOUND: a device does not work, or --gpus requires one that does not exist. */
#ifndef WORKER_SELF_TEST_SELF_TEST_H
#define WORKER_SELF_TEST_SELF_TEST_H
#include "base/status.h"

struct self_test_config {
    int as_json;
    const char *gpus; /* value of --gpus; auto[:N]: every GPU, and no error if there are no GPUs */
    const char *backend_dir; /* folder of the backends; NULL: they are beside the program */
    int seconds;             /* limit for the test of one device */
};

enum status self_test_print(const struct self_test_config *cfg);

#endif
