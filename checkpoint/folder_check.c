/* checkpoint/folder_check.c - are the files that a manifest will name there? A client of a
 * network folder may see names and sizes of a minute ago, so what is missing or short is looked for
 * again; opening the folder makes such a client ask for its names anew. Data are not read: they
 * were synced before they were reported, and each has its checksum in the header. */
#include "base/clock.h"
#include "checkpoint/folder.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AGAIN_MS = 250 };

static int has_number(const struct safetensors_file *f, const char *key, uint64_t want)
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
    TRY(safetensors_open(path, &f, text));
    TRY(safetensors_check_header(f, &m->files[i], text));
    if (!has_number(f, "generation", m->generation) || !has_number(f, "step", (uint64_t)m->step) ||
        !has_number(f, "server", (uint64_t)i) || !has_number(f, "servers", (uint64_t)m->n_files)) {
        snprintf(text, sizeof text, "is of another generation, step or server");
        st = ST_MISMATCH; /* that does not change */
    }
done:
    safetensors_close(f);
    int is_barred = st == ST_IO && access(path, R_OK) != 0 && errno == EACCES;
    if (is_barred)
        snprintf(why, MANIFEST_WHY_BYTES, "%s: this user may not read it; " FOLDER_USERS, name);
    else if (st != ST_OK)
        snprintf(why, MANIFEST_WHY_BYTES, "%s %s", name, text);
    return is_barred ? ST_INVALID : st;
}

/* 1: the wait is over, the deadline is not. */
static int wait_again(const char *folder, const struct checkpoint_folder_check *how)
{
    int64_t now = clock_now_ns(), until = now + AGAIN_MS * INT64_C(1000000);
    if (!how->wait || now >= how->deadline_ns)
        return 0;
    if (how->wait(how->ctx, until < how->deadline_ns ? until : how->deadline_ns))
        return -1;
    DIR *dir = opendir(folder);
    if (dir)
        closedir(dir);
    return 1;
}

enum status checkpoint_folder_check_files(const char *folder, const struct checkpoint_manifest *m,
                                          const struct checkpoint_folder_check *how,
                                          char why[MANIFEST_WHY_BYTES])
{
    for (int i = 0; i < m->n_files; i++) {
        enum status st = ST_OK;
        int again = 0;
        do {
            if (!how->here || how->here[i])
                st = check_file(folder, m, i, why);
            if (st == ST_MISMATCH)
                return ST_CORRUPT;
            if (st == ST_INVALID) /* a retry does not help */
                return ST_INVALID;
            again = st == ST_OK ? 0 : wait_again(folder, how);
        } while (again > 0);
        if (st != ST_OK)
            return again < 0 ? ST_CANCELLED : st;
    }
    return ST_OK;
}
