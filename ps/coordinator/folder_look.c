/* ps/coordinator/folder_look.c - reads the checkpoint folder in a lane, to see whether the job
 * is over for this server (folder_look.h). */
#include "ps/coordinator/folder_look.h"
#include "base/hosts.h"
#include "checkpoint/folder.h"
#include "checkpoint/parts.h"
#include "checkpoint/restore.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct look_job {
    struct lane_job job; /* first member, since the lane passes its address */
    struct folder_look look;
};

/* Determines whether the newest checkpoint has all steps of its job, and whether ps 0 has ended. A
 * folder without a lease never belonged to a ps 0: it is this server's own. A server with a store
 * uses the answer only if ps 0 has ended. Such a server asks often, and a checkpoint is slow to
 * read: for it the checkpoint is read only if ps 0 has ended. */
static void look_at_steps(struct folder_look *look)
{
    struct checkpoint_restore *r = NULL;
    struct checkpoint_lease lease;
    if (checkpoint_folder_lease(look->folder, &lease) != ST_OK)
        return;
    if (lease.epoch == 0) {
        look->has_all_steps = !look->generation && checkpoint_parts_have_all_steps(look->folder);
        return;
    }
    bool has_ended = checkpoint_folder_owner_ended(look->folder, &lease, NULL);
    if (look->generation && !has_ended)
        return;
    look->has_all_steps =
        checkpoint_restore_find(look->folder, &r) == ST_OK && checkpoint_restore_has_all_steps(r);
    checkpoint_restore_close(r);
    look->is_over = look->has_all_steps && has_ended;
}

/* Returns true if the list of servers that ps 0 has recorded in the folder lacks this server. */
static bool is_unlisted(const struct folder_look *look)
{
    struct hosts servers = {0, NULL};
    char path[PATH_MAX + 16], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "%s/servers", look->folder);
    FILE *file = fopen(path, "r");
    bool is_known = file && getline(&line, &room, file) > 0 && getline(&line, &room, file) > 0;
    if (file)
        fclose(file);
    if (is_known)
        line[strcspn(line, "\n")] = 0;
    bool lacks = is_known && hosts_parse(line, path, &servers) == ST_OK && servers.n > 0;
    for (int i = 0; lacks && i < servers.n; i++)
        lacks = strcmp(servers.addr[i], look->address) != 0;
    hosts_free(&servers);
    free(line);
    return lacks;
}

/* Returns true if the job continues without this server: a checkpoint is newer than this server's
 * generation, so that a restarted ps 0 does not use this server's chunks. */
static bool is_left_out(const struct folder_look *look)
{
    const struct checkpoint_restore_query newest = {.folder = look->folder};
    struct checkpoint_restore *r = NULL;
    if (!is_unlisted(look) || checkpoint_restore_open(&newest, &r) != ST_OK)
        return false;
    bool is_newer = checkpoint_restore_manifest(r)->generation > look->generation;
    checkpoint_restore_close(r);
    return is_newer;
}

static void read_folder(struct lane_job *job)
{
    struct folder_look *look = &((struct look_job *)job)->look;
    look->is_left_out = look->generation && is_left_out(look);
    look_at_steps(look);
}

static void end_look(struct lane_job *job, bool is_left)
{
    const struct folder_look *look = &((struct look_job *)job)->look;
    if (!is_left)
        look->end(look->ctx, look);
    free(job);
}

void folder_look_post(struct lane *lane, const struct folder_look *question)
{
    struct look_job *j = calloc(1, sizeof *j);
    if (!j) /* the follower asks again */
        return;
    j->job = (struct lane_job){.work = read_folder, .end = end_look};
    j->look = *question;
    if (lane_post(lane, &j->job) != ST_OK)
        free(j);
}
