/* worker/device/report_json.c - prints a JSON report to stdout. */
#include "worker/device/report_json.h"
#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>

enum status report_json_print_free(json_t *all)
{
    char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
    json_decref(all);
    if (text == NULL) {
        LOG_E("out of memory, or a device's name is not UTF-8, in the list of devices");
        return ST_NOMEM;
    }
    puts(text);
    free(text);
    return ST_OK;
}
