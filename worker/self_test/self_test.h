/* worker/self_test/self_test.h - --self_test: does each device of this machine compute, and right?
 * Every GPU that CUDA shows (or that --gpus names) and the CPU take a small training step; what
 * they make of it is compared with the same in plain double precision, so that a CPU backend that
 * computes wrongly is found, too. A line per device goes to stdout: "GPU is
 * running!" with the time and the memory it took, or the exact reason why not; or all as JSON.
 *
 * Each device is tested in a process of its own, so that a driver that crashes or hangs ends one
 * device's test and no more, and so that nothing of a card is held when its line is printed.
 * Nothing is reserved: a card that others use is tested beside them.
 * Owns:    its processes. Threads: none; call before the first thread starts.
 * Errors:  ST_NOT_FOUND: a device does not work, or none is there that --gpus wants. */
#ifndef WORKER_SELF_TEST_SELF_TEST_H
#define WORKER_SELF_TEST_SELF_TEST_H
#include "base/status.h"

struct self_test_config {
    int as_json;
    const char *gpus;        /* as --gpus; auto[:N]: every GPU, and none is no error */
    const char *backend_dir; /* NULL: beside the program */
    int seconds;             /* that the test of one device may take */
};

enum status self_test_print(const struct self_test_config *cfg);

#endif
