/* worker/device/device_list.h - --list_devices: all devices of this machine on stdout.
 * As text it is what TensorFlow's device_lib.list_local_devices prints of each device; as JSON one
 * object with what is known of each, how busy it is, and why --gpus=auto would not take it.
 * Threads: none. Errors: ST_IO, ST_NOMEM; logged. */
#ifndef WORKER_DEVICE_DEVICE_LIST_H
#define WORKER_DEVICE_DEVICE_LIST_H
#include "base/status.h"

enum status device_list_print(int as_json, const char *lock_dir);

#endif
