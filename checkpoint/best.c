/* checkpoint/best.c - see best.h. */
#include "checkpoint/best.h"
#include "base/log.h"
#include "files/durable.h"
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 4096 };

static bool make_path(const char *folder, char path[PATH_MAX])
{
    return (size_t)snprintf(path, PATH_MAX, "%s/best", folder) < PATH_MAX;
}

static uint32_t crc_of(const json_t *root, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(root, key));
    return value >= 0 && value <= UINT32_MAX ? (uint32_t)value : 0;
}

/* Checks an accuracy, the share of samples that were classified correctly. Data with targets
 * instead of labels have no accuracy: JSON null. */
static bool can_be_accuracy(const json_t *value)
{
    double is = json_number_value(value);
    return json_is_null(value) || (json_is_number(value) && is >= 0 && is <= 1);
}

static bool parse(const char *text, size_t n, struct checkpoint_best *out)
{
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const char *name = json_string_value(json_object_get(root, "manifest"));
    const json_t *loss = json_object_get(root, "validation_loss");
    const json_t *accuracy = json_object_get(root, "validation_accuracy");
    struct checkpoint_name is = {.kind = CHECKPOINT_NAME_OTHER};
    if (name)
        checkpoint_name_parse(name, &is);
    int64_t samples = json_integer_value(json_object_get(root, "validation_samples"));
    bool ok = is.kind == CHECKPOINT_NAME_MANIFEST && !is.old && json_is_number(loss) &&
              can_be_accuracy(accuracy) && samples >= 0;
    if (ok)
        *out = (struct checkpoint_best){is.id,
                                        json_number_value(loss),
                                        json_is_null(accuracy) ? (double)NAN
                                                               : json_number_value(accuracy),
                                        {samples, crc_of(root, "validation_samples_crc32c"),
                                         crc_of(root, "validation_labels_crc32c")}};
    json_decref(root);
    return ok;
}

enum status checkpoint_best_read(const char *folder, struct checkpoint_best *out)
{
    char path[PATH_MAX], text[MOST_BYTES];
    if (!make_path(folder, path))
        return ST_NOT_FOUND;
    FILE *f = fopen(path, "re");
    if (!f && errno == ENOENT)
        return ST_NOT_FOUND;
    size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    int failed = !f || ferror(f), err = errno;
    if (f)
        fclose(f);
    if (failed && err != EISDIR) {
        LOG_W("%s: cannot be read: %s", path, status_errno_text(err));
        return ST_IO;
    }
    if (!failed && n < sizeof text && parse(text, n, out))
        return ST_OK;
    LOG_W(
        "%s: this file names no checkpoint, so no best checkpoint is kept; remove the file, and the next best evaluation writes a new one",
        path);
    return ST_CORRUPT;
}

bool checkpoint_best_is(const char *path)
{
    const char *slash = strrchr(path, '/');
    char head[2] = "";
    if (strcmp(slash ? slash + 1 : path, "best") != 0)
        return false;
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    return n == sizeof head && head[0] == '{' && head[1] == '"';
}

/* Returns true if the path is the folder, or a file in it. */
static bool is_in(const char *folder, const char *path)
{
    struct stat here, there;
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (stat(folder, &here) != 0 || stat(path, &there) != 0)
        return false;
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    if (!S_ISDIR(there.st_mode) && stat(parent, &there) != 0)
        return false;
    return here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

enum status checkpoint_best_find(const char *folder, const char *restore,
                                 struct checkpoint_best *out)
{
    struct checkpoint_best best;
    enum status st = checkpoint_best_read(folder, &best);
    if (st == ST_OK && restore && !is_in(folder, restore)) {
        LOG_W(
            "%s/best: training resumes from %s, which is outside this folder, so the best evaluation that this file records is not compared with new ones; the next evaluation replaces it",
            folder, restore);
        return ST_NOT_FOUND;
    }
    if (st == ST_OK)
        *out = best;
    if (st == ST_IO)
        LOG_E(
            "%s/best: this file cannot be read, and the next evaluation would replace it, so training does not begin; make the file readable or remove it, then start this program again",
            folder);
    return st == ST_CORRUPT ? ST_NOT_FOUND : st;
}

enum status checkpoint_best_write(const char *folder, const struct checkpoint_best *best)
{
    char path[PATH_MAX], name[MANIFEST_NAME_BYTES];
    checkpoint_manifest_name(best->id, name);
    json_t *root = json_pack(
        "{s:s, s:I, s:f, s:o, s:I, s:I, s:I}", "manifest", name, "step", (json_int_t)best->id.step,
        "validation_loss", best->loss, "validation_accuracy",
        isnan(best->accuracy) ? json_null() : json_real(best->accuracy), "validation_samples",
        (json_int_t)best->data.n, "validation_samples_crc32c", (json_int_t)best->data.samples,
        "validation_labels_crc32c", (json_int_t)best->data.labels);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    bool fits = make_path(folder, path);
    enum status st = text && fits ? durable_put(path, text, strlen(text)) : ST_NOMEM;
    if (!text || !fits)
        LOG_E("%s: cannot record the best checkpoint: out of memory", folder);
    free(text);
    json_decref(root);
    return st;
}
