/* worker/device/report_json.h - what a command of the worker reports, on stdout, for machines.
 * Errors: ST_NOMEM; logged. */
#ifndef WORKER_DEVICE_REPORT_JSON_H
#define WORKER_DEVICE_REPORT_JSON_H
#include "base/status.h"
#include <jansson.h>

/* Prints it, indented, and releases it; NULL: it could not be made. */
enum status report_json_print_free(json_t *all);

#endif
