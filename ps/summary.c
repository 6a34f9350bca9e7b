/* ps/summary.c - see summary.h. Numbers alone, so nothing needs quoting. */
#include "ps/summary.h"
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void write_fields(FILE *f, const struct ps_summary *s)
{
    fprintf(f, "{\n  \"role\": \"ps\",\n  \"task_index\": %d,\n", s->task_index);
    fprintf(f, "  \"steps\": %" PRId64 ",\n", ps_service_steps_made(&s->stats));
    fprintf(f, "  \"first_step\": %" PRId64 ",\n", s->stats.began);
    fprintf(f, "  \"last_step\": %" PRId64 ",\n",
            s->stats.steps < s->stats.began ? s->stats.began : s->stats.steps);
    fprintf(f, "  \"seconds\": %.6f,\n", s->stats.seconds);
    fprintf(f, "  \"received_bytes\": %" PRIu64 ",\n", s->stats.received_bytes);
    fprintf(f, "  \"sent_bytes\": %" PRIu64 ",\n  \"workers\": [", s->stats.sent_bytes);
    for (int i = 0; i < s->n_workers; i++)
        fprintf(f,
                "%s\n    {\"worker\": %d, \"times_last\": %" PRId64
                ", \"seconds_waited_for\": %.6f}",
                i > 0 ? "," : "", i, s->late[i].times, s->late[i].seconds);
    fprintf(f, "\n  ]\n}\n");
}

enum status ps_summary_write(const char *path, const struct ps_summary *s)
{
    char part[4096];
    FILE *f = NULL;
    int ok = (size_t)snprintf(part, sizeof part, "%s.part", path) < sizeof part;
    if (!ok)
        errno = ENAMETOOLONG;
    if (ok)
        f = fopen(part, "w");
    if (f) {
        write_fields(f, s);
        ok = !ferror(f);
        ok = fclose(f) == 0 && ok && rename(part, path) == 0;
    }
    if (f && ok)
        return ST_OK;
    LOG_E("--summary_json: cannot write %s: %s", path, status_errno_text(errno));
    return ST_IO;
}
