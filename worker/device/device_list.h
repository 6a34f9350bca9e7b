/* worker/device/device_list.h - --list_devices: prints all devices of this machine to stdout. Text
 * has the form of TensorFlow's device_lib.list_local_devices. JSON is one object with identity,
 * load, health and reservations of each device, and the reason why --gpus=auto would not choose it.
 * The memory shown is what a worker with the same flags may use.
 * Threads: only the main thread. Errors: ST_IO, ST_NOMEM; logged. */
#ifndef WORKER_DEVICE_DEVICE_LIST_H
#define WORKER_DEVICE_DEVICE_LIST_H
#include "base/status.h"

struct device_list_config {
    int as_json;
    const char *lock_dir;
    /* fraction of a GPU's memory that a worker with these flags uses; 0: no limit */
    double memory_fraction;
    int allow_growth;
};
enum status device_list_print(const struct device_list_config *cfg);

#endif
