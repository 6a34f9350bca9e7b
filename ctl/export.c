/* ctl/export.c - see export.h. */
#include "ctl/export.h"
#include "base/log.h"
#include "base/process.h"
#include "checkpoint/table_export.h"
#include "files/output_path.h"
#include "files/target.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DIGITS = 19, TRIES = 5 };
#define REBASE "begin again with a full export (weirctl export without --since)"

static struct checkpoint_id id_of(const struct checkpoint_restore *r)
{
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(r);
    return (struct checkpoint_id){m->generation, m->step};
}

/* Reads STEP or E.G-STEP. The generation 0 stands for any. */
static bool parse_since(const char *text, struct checkpoint_id *out)
{
    uint64_t epoch = 0, n = 0, step;
    const char *dot = strchr(text, '.');
    if (dot) {
        text = checkpoint_name_number(text, DIGITS, &epoch);
        text = text && *text == '.' ? checkpoint_name_number(text + 1, DIGITS, &n) : NULL;
        if (!text || *text++ != '-' || epoch >> (64 - TERM_BITS) || n >> TERM_BITS || epoch + n < 1)
            return false;
    }
    text = checkpoint_name_number(text, DIGITS, &step);
    if (!text || *text || step > INT64_MAX)
        return false;
    *out = (struct checkpoint_id){dot ? checkpoint_term(epoch, n) : 0, (int64_t)step};
    return true;
}

/* Checks that the output is a regular file, or a new one, outside of the folder of checkpoints, in
 * which it could replace one of them. */
static bool check_output(const struct ctl_export *e)
{
    struct target t;
    struct stat its, folder;
    char dir[PATH_MAX];
    if (target_find(e->output, &t) != 0 || target_folder(t.path, dir) != 0)
        return true; /* output_path_check names the fault */
    if (strcmp(e->output, "-") == 0) {
        LOG_E("--output=-: an export cannot be written to a pipe; write the name of a file");
        return false;
    }
    if (t.in_place) {
        LOG_E("--output=%s is a device or a FIFO; write the name of a file", e->output);
        return false;
    }
    if (stat(dir, &its) != 0 || stat(e->folder, &folder) != 0 || its.st_dev != folder.st_dev ||
        its.st_ino != folder.st_ino)
        return true;
    LOG_E(
        "--output=%s is in --checkpoint_dir=%s, whose files belong to the job; write it to another folder",
        e->output, e->folder);
    return false;
}

static int check_usage(const struct ctl_export *e, struct checkpoint_id *since)
{
    if (!e->folder[0]) {
        LOG_E("export: --checkpoint_dir is missing; write the folder of the job's checkpoints");
        return EXIT_USAGE;
    }
    if (!e->output[0]) {
        LOG_E(
            "export: --output is missing; write the name of the file, as in --output=full.safetensors");
        return EXIT_USAGE;
    }
    if (e->since && !parse_since(e->since, since)) {
        LOG_E(
            "--since=%.60s is neither a step nor the id of a checkpoint; write it as 300 or as 1.2-300",
            e->since);
        return EXIT_USAGE;
    }
    if (!check_output(e))
        return EXIT_USAGE;
    enum status st = output_path_check("output", e->output);
    return st == ST_OK ? 0 : st == ST_INVALID ? EXIT_USAGE : EXIT_RETRY;
}

/* Checks that all files are in the folder. */
static bool has_all_files(const struct ctl_export *e, const struct checkpoint_restore *r)
{
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(r);
    char name[MANIFEST_NAME_BYTES];
    for (int i = 0; i < m->n_files; i++) {
        if (checkpoint_restore_has_file(r, i))
            continue;
        checkpoint_manifest_file_name(id_of(r), i, m->n_files, name);
        LOG_E(
            "%s: file %s is in the folder of another server: copy the files of all servers into one folder, and export from there",
            e->folder, name);
        return false;
    }
    return true;
}

/* Finds the id of the newest manifest; its generation is 0 if the folder has none. */
static enum status find_newest(const char *folder, struct checkpoint_id *out)
{
    struct checkpoint_manifest_place *list = NULL;
    int n = 0;
    enum status st = checkpoint_retention_list(folder, &list, &n);
    if (st == ST_OK)
        *out = n > 0 ? list[0].id : (struct checkpoint_id){0, 0};
    free(list);
    return st;
}

/* Opens the newest complete checkpoint. A running job removes old ones: if the newest one could not
 * be opened, and there is another newest one now, the search begins again. *passed: the newest
 * checkpoint, if an older one was opened instead; otherwise its generation is 0. */
static enum status find_target(const struct ctl_export *e, struct checkpoint_restore **out,
                               struct checkpoint_id *passed)
{
    const struct checkpoint_restore_query query = {.folder = e->folder, .exports = true};
    struct checkpoint_id newest, now;
    enum status st = find_newest(e->folder, &newest);
    if (st != ST_OK)
        return st;
    for (int i = 1;; i++) {
        st = checkpoint_restore_open(&query, out);
        if (st == ST_OK && checkpoint_names_compare(id_of(*out), newest) >= 0)
            return st;
        bool is_same =
            find_newest(e->folder, &now) != ST_OK || checkpoint_names_compare(now, newest) == 0;
        if (st == ST_OK && (i == TRIES || is_same))
            *passed = newest;
        if (i == TRIES || is_same)
            return st;
        checkpoint_restore_close(*out);
        *out = NULL;
        newest = now;
    }
}

/* Opens the newest complete checkpoint. Returns 0 or the exit status. */
static int open_target(const struct ctl_export *e, struct checkpoint_restore **out,
                       struct checkpoint_id *passed)
{
    struct stat s;
    bool is_there = stat(e->folder, &s) == 0;
    if (!is_there || !S_ISDIR(s.st_mode)) {
        LOG_E("--checkpoint_dir=%s: %s", e->folder,
              is_there ? "it is not a folder; write the folder of the job's checkpoints"
                       : status_errno_text(errno));
        return EXIT_PERMANENT;
    }
    enum status st = find_target(e, out, passed);
    if (st == ST_NOT_FOUND)
        LOG_E("%s has no checkpoint yet; try again when the job has written one", e->folder);
    if (st != ST_OK)
        return st == ST_CORRUPT || st == ST_INVALID ? EXIT_PERMANENT : EXIT_RETRY;
    return has_all_files(e, *out) ? 0 : EXIT_PERMANENT;
}

/* Finds the base in the folder: the newest checkpoint with this step (and generation) in the line
 * of descent of the target; otherwise the newest one with this step. Returns false if the folder
 * has no such checkpoint. */
static bool find_base(const struct checkpoint_manifest_place *list, int n,
                      struct checkpoint_id since, const struct checkpoint_restore *target,
                      struct checkpoint_id *out)
{
    const struct checkpoint_lineage *l = &checkpoint_restore_manifest(target)->lineage;
    bool found = false;
    for (int i = 0; i < n; i++) {
        struct checkpoint_id id = list[i].id;
        if (id.step != since.step || (since.generation && id.generation != since.generation))
            continue;
        bool fits = checkpoint_names_compare(id, id_of(target)) == 0 ||
                    checkpoint_lineage_has(l, id, id_of(target));
        if (!found || fits)
            *out = id;
        found = true;
        if (fits)
            break;
    }
    return found;
}

static int open_base(const struct ctl_export *e, struct checkpoint_id since,
                     const struct checkpoint_restore *target, struct checkpoint_restore **out)
{
    struct checkpoint_manifest_place *list = NULL;
    struct checkpoint_id id;
    char name[MANIFEST_NAME_BYTES], newest[EXPORT_ID_BYTES];
    int n = 0;
    enum status st = checkpoint_retention_list(e->folder, &list, &n);
    bool found = st == ST_OK && find_base(list, n, since, target, &id);
    free(list);
    if (st != ST_OK)
        return EXIT_RETRY;
    if (!found) {
        table_export_id(id_of(target), newest);
        LOG_E("--since=%s: %s has no such checkpoint (the newest one is %s); " REBASE, e->since,
              e->folder, newest);
        return CTL_EXIT_REBASE;
    }
    if (checkpoint_names_compare(id, id_of(target)) == 0) {
        LOG_E("--since=%s is the newest checkpoint; try again after the next one", e->since);
        return EXIT_RETRY;
    }
    if (checkpoint_names_compare(id, id_of(target)) > 0) {
        table_export_id(id_of(target), newest);
        LOG_E(
            "--since=%s is newer than the newest complete checkpoint, %s; try again after the next one",
            e->since, newest);
        return EXIT_RETRY;
    }
    checkpoint_manifest_name(id, name);
    st = checkpoint_restore_open(
        &(struct checkpoint_restore_query){.folder = e->folder, .name = name, .exports = true},
        out);
    if (st == ST_IO || st == ST_NOMEM)
        return EXIT_RETRY;
    if (st == ST_INVALID)
        return EXIT_PERMANENT;
    if (st == ST_OK && has_all_files(e, *out))
        return 0;
    LOG_E("--since=%s: this checkpoint cannot be used; " REBASE, e->since);
    return CTL_EXIT_REBASE;
}

/* Adds the id of a checkpoint, and the checksum of its manifest. Returns false if memory ran out.
 */
static bool add_checkpoint(json_t *root, const struct checkpoint_restore *r, const char *id_key,
                           const char *crc_key)
{
    char id[EXPORT_ID_BYTES], crc[16];
    table_export_id(id_of(r), id);
    snprintf(crc, sizeof crc, "%08x", checkpoint_restore_manifest(r)->crc32c);
    return json_object_set_new(root, id_key, json_string(id)) == 0 &&
           json_object_set_new(root, crc_key, json_string(crc)) == 0;
}

static int print_json(const struct ctl_export *e, const struct checkpoint_restore *base,
                      const struct checkpoint_restore *target, const char *passed,
                      const struct table_export_counts *c)
{
    json_t *root = json_pack("{s:s, s:s?, s:I, s:I, s:I, s:I}", "output", e->output, "passed_over",
                             passed[0] ? passed : NULL, "step",
                             (json_int_t)checkpoint_restore_manifest(target)->step, "rows",
                             (json_int_t)c->n_rows, "written_rows", (json_int_t)c->n_written,
                             "removed_keys", (json_int_t)c->n_removed);
    bool ok = root && add_checkpoint(root, target, "id", "manifest_crc32c") &&
              (!base || add_checkpoint(root, base, "since_id", "since_manifest_crc32c"));
    char *text = ok ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text) {
        LOG_E("out of memory for the report; the file is complete");
        return EXIT_RETRY;
    }
    puts(text);
    free(text);
    return 0;
}

static int print_counts(const struct ctl_export *e, const struct checkpoint_restore *base,
                        const struct checkpoint_restore *target, struct checkpoint_id passed,
                        const struct table_export_counts *c)
{
    char id[EXPORT_ID_BYTES], since[EXPORT_ID_BYTES], over[EXPORT_ID_BYTES] = "";
    table_export_id(id_of(target), id);
    if (passed.generation)
        table_export_id(passed, over);
    if (e->json)
        return print_json(e, base, target, over, c);
    const char *also = over[0] ? "; passed over " : "";
    if (base) {
        table_export_id(id_of(base), since);
        printf("%s: patch from %s to %s: %" PRId64 " of %" PRId64 " rows changed, %" PRId64
               " keys removed%s%s\n",
               e->output, since, id, c->n_written, c->n_rows, c->n_removed, also, over);
    } else {
        printf("%s: full export of %s: %" PRId64 " rows%s%s\n", e->output, id, c->n_rows, also,
               over);
    }
    return 0;
}

int ctl_export_run(const struct ctl_export *e)
{
    struct checkpoint_restore *target = NULL, *base = NULL;
    struct checkpoint_id since = {0, 0}, passed = {0, 0};
    struct table_export_counts counts;
    char why[MANIFEST_WHY_BYTES];
    int code = check_usage(e, &since);
    if (code == 0)
        code = open_target(e, &target, &passed);
    if (code == 0 && e->since)
        code = open_base(e, since, target, &base);
    if (code == 0) {
        const struct table_export what = {base, target, e->row_dtype};
        enum status st = table_export_write(e->output, &what, &counts, why);
        bool waits = st == ST_CORRUPT && base; /* a patch to the next checkpoint may be made */
        if (st == ST_MISMATCH)
            LOG_E("--since=%s: %s; " REBASE, e->since, why);
        if (waits)
            LOG_E("the newest checkpoint is damaged; try again after the next one");
        code = st == ST_OK         ? print_counts(e, base, target, passed, &counts)
               : st == ST_MISMATCH ? CTL_EXIT_REBASE
               : (st == ST_CORRUPT && !waits) || st == ST_UNSUPPORTED || st == ST_RANGE
                   ? EXIT_PERMANENT
                   : EXIT_RETRY;
    }
    checkpoint_restore_close(base);
    checkpoint_restore_close(target);
    return code;
}
