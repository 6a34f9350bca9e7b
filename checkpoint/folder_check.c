/* checkpoint/folder_check.c - checks that the files that a manifest will name exist. A client of a
 * network folder may see names and sizes that are up to a minute old, so a missing or short file is
 * checked again; opening the folder makes such a client request its names again. Data are not read:
 * they were synced before the server reported them, and the header has a checksum of each
 * tensor. */
#include "base/clock.h"
#include "checkpoint/folder.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AGAIN_MS = 250 }; /* pause between two checks of a file */

static bool has_number(const struct safetensors_file *f, const char *key, uint64_t want)
{
    char text[32];
    const char *is = safetensors_metadata(f, key);
    snprintf(text, sizeof text, "%" PRIu64, want);
    return is && strcmp(is, text) == 0;
}

static enum status check_file(const char *folder, const struct checkpoint_manifest *m, int i,
                              char why[MANIFEST_WHY_BYTES])
{
    char path[PATH_MAX], name[MANIFEST_NAME_BYTES], text[SAFETENSORS_WHY_BYTES];
    struct safetensors_file *f = NULL;
    enum status st = ST_OK;
    checkpoint_manifest_file_name((struct checkpoint_id){m->generation, m->step}, i, m->n_files,
                                  name);
    snprintf(text, sizeof text, "the path is too long");
    TRY((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path ? ST_OK : ST_IO);
    TRY(safetensors_open_any(path, &f, text));
    TRY(safetensors_check_header(f, &m->files[i], text));
    if (!has_number(f, "generation", m->generation) || !has_number(f, "step", (uint64_t)m->step) ||
        !has_number(f, "server", (uint64_t)i) || !has_number(f, "servers", (uint64_t)m->n_files)) {
        snprintf(text, sizeof text, "is of another generation, step or server");
        st = ST_MISMATCH; /* a later check would find the same */
    }
done:
    safetensors_close(f);
    bool is_barred = st == ST_IO && access(path, R_OK) != 0 && errno == EACCES;
    if (is_barred)
        snprintf(why, MANIFEST_WHY_BYTES, "%s: this user may not read this path; " FOLDER_USERS,
                 name);
    else if (st != ST_OK)
        snprintf(why, MANIFEST_WHY_BYTES, "%s %s", name, text);
    return is_barred ? ST_INVALID : st;
}

enum again { AGAIN_NO, AGAIN_YES, AGAIN_CANCELLED };

/* Waits before another check of a file. AGAIN_NO: the deadline has passed. */
static enum again wait_again(const char *folder, const struct checkpoint_folder_check *how)
{
    int64_t now = clock_now_ns(), until = now + AGAIN_MS * INT64_C(1000000);
    if (!how->wait || now >= how->deadline_ns)
        return AGAIN_NO;
    if (how->wait(how->ctx, until < how->deadline_ns ? until : how->deadline_ns))
        return AGAIN_CANCELLED;
    DIR *dir = opendir(folder);
    if (dir)
        closedir(dir);
    return AGAIN_YES;
}

enum status checkpoint_folder_check_files(const char *folder, const struct checkpoint_manifest *m,
                                          const struct checkpoint_folder_check *how,
                                          char why[MANIFEST_WHY_BYTES])
{
    for (int i = 0; i < m->n_files; i++) {
        enum status st = ST_OK;
        enum again again = AGAIN_NO;
        do {
            if (!how->here || how->here[i])
                st = check_file(folder, m, i, why);
            if (st == ST_MISMATCH)
                return ST_CORRUPT;
            if (st == ST_INVALID) /* a retry does not help */
                return ST_INVALID;
            again = st == ST_OK ? AGAIN_NO : wait_again(folder, how);
        } while (again == AGAIN_YES);
        if (st != ST_OK)
            return again == AGAIN_CANCELLED ? ST_CANCELLED : st;
    }
    return ST_OK;
}
