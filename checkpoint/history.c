/* checkpoint/history.c - see history.h. The line is "history SINCE GENERATION STEP". */
#include "checkpoint/history.h"
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

enum { LINE = 3 }; /* number of the line, from 1 */

void checkpoint_history_print(const struct checkpoint_history *h, FILE *f)
{
    if (h->since)
        fprintf(f, "history %" PRIu64 " %" PRIu64 " %" PRId64 "\n", h->since, h->resumed.generation,
                h->resumed.step);
}

struct checkpoint_history checkpoint_history_parse(FILE *f)
{
    struct checkpoint_history h = {{0, 0}, 0};
    char *line = NULL;
    size_t room = 0;
    ssize_t n = 0;
    for (int i = 0; i < LINE && n >= 0; i++)
        n = getline(&line, &room, f);
    if (n > 0 && sscanf(line, "history %" SCNu64 " %" SCNu64 " %" SCNd64, &h.since,
                        &h.resumed.generation, &h.resumed.step) != 3)
        h = (struct checkpoint_history){{0, 0}, 0};
    free(line);
    return h;
}

struct checkpoint_history checkpoint_history_read(const char *folder)
{
    struct checkpoint_history h = {{0, 0}, 0};
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/servers", folder);
    FILE *f = fopen(path, "r");
    if (!f)
        return h;
    h = checkpoint_history_parse(f);
    fclose(f);
    return h;
}

bool checkpoint_history_lacks(const struct checkpoint_history *h, struct checkpoint_id id)
{
    return id.generation < h->since && checkpoint_names_compare(id, h->resumed) > 0;
}
