/* worker/device/report_json.h - prints the worker's reports to stdout in JSON, for other programs.
 * Errors: ST_NOMEM; logged. */
#ifndef WORKER_DEVICE_REPORT_JSON_H
#define WORKER_DEVICE_REPORT_JSON_H
#include "base/status.h"
#include <jansson.h>

/* Prints the object, indented, and frees it. NULL, because the caller could not create it:
 * ST_NOMEM. */
enum status report_json_print_free(json_t *all);

#endif
