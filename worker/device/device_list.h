/* worker/device/device_list.h - --list_devices: all devices of this machine on stdout.
 * As text it is what TensorFlow's device_lib.list_local_devices prints of each device; as JSON one
 * object with what is known of each, how busy it is, how it fares, who has reserved it, and why
 * --gpus=auto would not take it. Memory is what a worker with the same flags could take.
 * Threads: none. Errors: ST_IO, ST_NOMEM; logged. */
#ifndef WORKER_DEVICE_DEVICE_LIST_H
#define WORKER_DEVICE_DEVICE_LIST_H
#include "base/status.h"

struct device_list_config {
    int as_json;
    const char *lock_dir;
    double memory_fraction; /* as a worker with these flags would have it; 0: no limit */
    int allow_growth;
};
enum status device_list_print(const struct device_list_config *cfg);

#endif
