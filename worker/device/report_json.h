/* worker/device/report_json.h - reports of the worker's commands on stdout, for programs. Errors:
 * ST_NOMEM; logged. */
#ifndef WORKER_DEVICE_REPORT_JSON_H
#define WORKER_DEVICE_REPORT_JSON_H
#include "base/status.h"
#include <jansson.h>

/* Prints the object, indented, and frees it; NULL: it could not be created. */
enum status report_json_print_free(json_t *all);

#endif
