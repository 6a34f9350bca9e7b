/* ps/folder.c - see manifest.h: a folder of checkpoints. A name that is not ours is never touched.
 * What goes away goes in an order that leaves whole checkpoints at each moment: `checkpoint` first
 * stops naming it, then its manifest goes, then its files. */
#include "base/log.h"
#include "files/durable.h"
#include "ps/manifest.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int join_path(char path[PATH_MAX], const char *folder, const char *name)
{
    return (size_t)snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

/* 1 if it is a manifest's name. */
static int is_manifest(const char *name, int64_t *step)
{
    char own[MANIFEST_NAME_BYTES];
    if (sscanf(name, "weir-%" SCNd64 ".json", step) != 1)
        return 0;
    ps_manifest_name(*step, own);
    return strcmp(name, own) == 0;
}

/* 1 if it is the name of a server's file, or of one that was never finished. */
static int is_file(const char *name, int64_t *step)
{
    char own[MANIFEST_NAME_BYTES];
    int server, n;
    if (sscanf(name, "weir-%" SCNd64 "-%d-of-%d.", step, &server, &n) != 3)
        return 0;
    ps_manifest_file_name(*step, server, n, own);
    size_t length = strlen(own);
    return strncmp(name, own, length) == 0 && (!name[length] || name[length] == '.');
}

static int is_left_over(const char *name)
{
    size_t n = strlen(name);
    int ours = !strncmp(name, "weir-", 5) || !strncmp(name, "checkpoint.", 11) ||
               !strncmp(name, "generation.", 11) || !strncmp(name, "servers.", 8);
    return ours && n > 4 && !strcmp(name + n - 4, ".tmp");
}

static int newest_first(const void *a, const void *b)
{
    const struct ps_manifest_place *x = a, *y = b;
    if (x->readable != y->readable)
        return x->readable - y->readable;
    if (x->generation != y->generation)
        return x->generation < y->generation ? 1 : -1;
    return x->step < y->step ? 1 : x->step > y->step ? -1 : 0;
}

static void look_at(const char *folder, int64_t step, struct ps_manifest_place *place)
{
    char path[PATH_MAX], name[MANIFEST_NAME_BYTES];
    struct ps_manifest *m = NULL;
    *place = (struct ps_manifest_place){.step = step};
    ps_manifest_name(step, name);
    if (!join_path(path, folder, name) || ps_manifest_read(path, &m, place->why) != ST_OK)
        return;
    place->readable = m->step == step;
    place->generation = m->generation;
    if (!place->readable)
        snprintf(place->why, sizeof place->why, "is that of step %" PRId64 ", renamed", m->step);
    ps_manifest_free(m);
}

enum status ps_manifest_list(const char *folder, struct ps_manifest_place **out, int *n)
{
    struct ps_manifest_place *list = NULL, *grown;
    int64_t step;
    int count = 0, failed = 0;
    DIR *dir = opendir(folder);
    if (!dir && errno != ENOENT) {
        enum status st = status_of_errno(errno);
        LOG_E("%s: cannot be read: %s", folder, strerror(errno));
        return st;
    }
    for (struct dirent *e; dir && !failed && (e = readdir(dir));) {
        if (!is_manifest(e->d_name, &step))
            continue;
        grown = realloc(list, ((size_t)count + 1) * sizeof *list);
        failed = !grown;
        if (failed)
            break;
        list = grown;
        look_at(folder, step, &list[count++]);
    }
    if (dir)
        closedir(dir);
    if (failed) {
        LOG_E("%s: out of memory for its %d checkpoints", folder, count);
        free(list);
        return ST_NOMEM;
    }
    if (count > 0)
        qsort(list, (size_t)count, sizeof *list, newest_first);
    *out = list;
    *n = count;
    return ST_OK;
}

/* TensorFlow's file: the newest, then all from the oldest to the newest. */
static enum status write_pointer(const char *folder, const struct ps_manifest_place *kept, int n)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f || !join_path(path, folder, "checkpoint")) {
        LOG_E("%s/checkpoint: out of memory, or the path is too long", folder);
        if (f)
            fclose(f);
        free(text);
        return ST_NOMEM;
    }
    fprintf(f, "model_checkpoint_path: \"weir-%" PRId64 "\"\n", kept[0].step);
    for (int i = n - 1; i >= 0; i--)
        fprintf(f, "all_model_checkpoint_paths: \"weir-%" PRId64 "\"\n", kept[i].step);
    enum status st = fclose(f) == 0 ? durable_put(path, text, bytes) : ST_NOMEM;
    free(text);
    return st;
}

static int is_kept(const struct ps_manifest_place *list, int n, int64_t step)
{
    for (int i = 0; i < n; i++)
        if (list[i].step == step)
            return 1;
    return 0;
}

/* Takes away the files of steps that no manifest names any more, and those never finished. */
static enum status sweep(const char *folder, const struct ps_manifest_place *list, int n)
{
    char path[PATH_MAX];
    int64_t step;
    enum status st = ST_OK;
    DIR *dir = opendir(folder);
    if (!dir) {
        st = status_of_errno(errno);
        LOG_E("%s: cannot be read: %s", folder, strerror(errno));
        return st;
    }
    for (struct dirent *e; st == ST_OK && (e = readdir(dir));) {
        int orphan = is_file(e->d_name, &step) && !is_kept(list, n, step);
        if ((orphan || is_left_over(e->d_name)) && join_path(path, folder, e->d_name))
            st = durable_remove(path);
    }
    closedir(dir);
    return st;
}

enum status ps_manifest_tidy(const char *folder, int keep)
{
    struct ps_manifest_place *list = NULL;
    int n = 0, first = 0, last;
    enum status st = ps_manifest_list(folder, &list, &n);
    if (st != ST_OK)
        return st;
    while (first < n && !list[first].readable)
        first++;
    last = keep > 0 && n - first > keep ? first + keep : n;
    if (last > first)
        TRY(write_pointer(folder, list + first, last - first));
    for (int i = n - 1; i >= last; i--) {
        char path[PATH_MAX], name[MANIFEST_NAME_BYTES];
        ps_manifest_name(list[i].step, name);
        if (join_path(path, folder, name))
            TRY(durable_remove(path));
    }
    st = sweep(folder, list, last);
done:
    free(list);
    return st;
}
