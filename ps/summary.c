/* ps/summary.c - writes the final figures (summary.h). All values are numbers, so nothing needs
 * quoting. */
#include "ps/summary.h"
#include "base/log.h"
#include "files/durable.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void write_fields(FILE *f, const struct ps_summary *s)
{
    fprintf(f, "{\n  \"role\": \"ps\",\n  \"task_index\": %d,\n", s->task_index);
    fprintf(f, "  \"steps\": %" PRId64 ",\n", service_steps_made(&s->stats));
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
    char *text = NULL;
    size_t bytes = 0;
    enum status st = ST_NOMEM;
    FILE *f = open_memstream(&text, &bytes);
    if (f)
        write_fields(f, s);
    if (f && fclose(f) == 0)
        st = durable_put(path, text, bytes);
    else
        LOG_E("--summary_json: out of memory; nothing is written");
    free(text);
    return st;
}
