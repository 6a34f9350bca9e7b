/* ps/region/region_unsent.c - see region.h: keeps the rests of contributions that their number
 * format (int8, int4, topk) left unsent in the region's folder of checkpoints, so that they survive
 * the server: region-unsent-N.safetensors contains what the contributions to the parent's version N
 * left unsent, in one tensor for each chunk ("chunk 0", ...).
 *
 * The file is written while the parent's answer is in flight. The parent reports the last version
 * that has a contribution of this region. A restarted region reads the file of that version,
 * whichever of its own checkpoints it resumes from. The parent may go back by a version or two, so
 * the last few files are kept. If the region's own values are ahead of the parent's, they include
 * all that was sent up to version `held`, and the region reads the file of that version. */
#include "base/log.h"
#include "files/durable.h"
#include "files/safetensors.h"
#include "ps/region/region_impl.h"
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_KEPT = 3, NAME_BYTES = 24 };

static int path_of(const struct ps_region *r, int64_t version, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/region-unsent-%" PRId64 ".safetensors", r->cfg.folder,
                     version);
    return version > 0 && n < PATH_MAX;
}

/* Removes the files of versions outside lowest to highest, and the remains of an interrupted
 * write. */
static void delete_old_files(const struct ps_region *r, int64_t lowest, int64_t highest)
{
    static const char start[] = "region-unsent-";
    char path[PATH_MAX];
    DIR *dir = opendir(r->cfg.folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        int64_t version;
        int end = 0;
        if (strncmp(e->d_name, start, sizeof start - 1) != 0)
            continue;
        int whole =
            sscanf(e->d_name, "region-unsent-%" SCNd64 ".safetensors%n", &version, &end) == 1 &&
            end > 0 && !e->d_name[end];
        if (whole && version >= lowest && version <= highest)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", r->cfg.folder, e->d_name) < PATH_MAX)
            durable_remove(path);
    }
    if (dir)
        closedir(dir);
}

static enum status write_unsent(const struct ps_region *r, const char *path)
{
    int n = r->chunks->n_chunks;
    struct safetensors_tensor *t = calloc((size_t)n, sizeof *t);
    char(*names)[NAME_BYTES] = calloc((size_t)n, sizeof *names);
    const struct safetensors_content content = {.tensors = t, .n_tensors = n};
    enum status st = t && names ? ST_OK : ST_NOMEM;
    for (int i = 0; st == ST_OK && i < n; i++) {
        snprintf(names[i], NAME_BYTES, "chunk %d", i);
        t[i] = (struct safetensors_tensor){.name = names[i],
                                           .shape = {1, {r->chunks->chunks[i].n_elems}},
                                           .data = net_exchange_unsent(r->x, i)};
    }
    if (st == ST_OK)
        st = safetensors_write(path, &content, NULL);
    free(names);
    free(t);
    return st;
}

void region_unsent_keep(struct ps_region *r, int64_t version)
{
    char path[PATH_MAX];
    if (!r->cfg.folder || !path_of(r, version, path) || !net_exchange_unsent(r->x, 0))
        return;
    if (write_unsent(r, path) != ST_OK) {
        /* a file of this name would belong to a round that the parent has lost */
        durable_remove(path);
        LOG_W(
            "region %d: the unsent part of its contributions is lost if this server dies before the next round",
            r->cfg.index);
    }
    delete_old_files(r, version - N_KEPT + 1, r->held > version ? r->held : version);
}

/* Returns true if the file has the rests of this job's chunks. */
static bool fits(const struct ps_region *r, const struct safetensors_entry *e, int n)
{
    int ok = n == r->chunks->n_chunks;
    for (int i = 0; ok && i < n; i++)
        ok = e[i].has_crc && e[i].n_elems == r->chunks->chunks[i].n_elems;
    return ok;
}

/* Reads the rests. `of` is the parent's version whose contribution left these rests unsent. */
static enum status read_unsent(struct ps_region *r, const char *path, int64_t of,
                               char why[SAFETENSORS_WHY_BYTES])
{
    enum status st = ST_OK;
    struct safetensors_file *f = NULL;
    int n = 0;
    TRY(safetensors_open(path, &f, why));
    const struct safetensors_entry *e = safetensors_entries(f, &n);
    if (!fits(r, e, n)) {
        snprintf(why, SAFETENSORS_WHY_BYTES, "is of another model");
        TRY(ST_CORRUPT);
    }
    TRY(safetensors_check(f, NULL, why));
    for (int i = 0; i < n; i++) {
        float *to = r->change + r->chunks->chunks[i].first;
        TRY(safetensors_read(f, &e[i], 0, e[i].n_elems, to, why));
    }
    for (int i = 0; i < n; i++)
        net_exchange_set_unsent(r->x, i, of, r->change + r->chunks->chunks[i].first);
done:
    safetensors_close(f);
    return st;
}

void region_unsent_resume(struct ps_region *r)
{
    char path[PATH_MAX], why[SAFETENSORS_WHY_BYTES];
    int ahead = r->held > r->step;
    int64_t version = ahead ? r->held : r->last_counted;
    if (!r->cfg.folder || !net_exchange_unsent(r->x, 0))
        return;
    /* Files of other versions belong to rounds that the parent has lost. */
    delete_old_files(r, 0, ahead ? r->held : r->step + 1);
    if (!path_of(r, version, path))
        return;
    if (read_unsent(r, path, ahead ? r->step : version, why) != ST_OK)
        LOG_W("region %d: the unsent part of its contributions is lost: %s: %s", r->cfg.index, path,
              why);
}
