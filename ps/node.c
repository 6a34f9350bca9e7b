/* ps/node.c - creates, starts and ends a server's coordinator or follower and its checkpoints
 * (node.h). */
#include "ps/node.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "checkpoint/folder.h"
#include "checkpoint/owner.h"
#include "checkpoint/restore.h"
#include "files/durable.h"
#include "net/exchange/peer_client.h"
#include "net/rpc/server.h"
#include "ps/coordinator/follower_shell.h"
#include "ps/coordinator/plan_applier.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* least time for which a job that may be over waits for other programs to join */
    OVER_MS = 10000,
    TIDY_MS = 2000, /* time to delete old files of a folder, at the end */
};

struct node {
    struct node_config cfg;
    char restore_folder[PATH_MAX];
    char folder_id[FOLDER_ID_BYTES];
    struct own_folder *own_folder; /* NULL at ps 0 */
    /* Fields that ps 0 uses until it starts its coordinator. */
    struct checkpoint_restore *restore;
    struct hosts servers;
    struct checkpoint_history history; /* history that the folder has recorded */
    uint64_t incarnation;
    /* lease of the owner that was checked, later of this process's own claim */
    struct checkpoint_lease lease;
    int is_claimed;  /* true if the lease is of this process' claim */
    int64_t over_ms; /* see done_ms of coordinator_shell.h, follower_shell.h */
    char restored[CONTROL_TEXT_BYTES];
    struct net_server *_Atomic server; /* server that receives the calls */
    struct checkpoint_writer *writer;
    struct coordinator_shell *coordinator; /* coordinator of ps 0; NULL at the other servers */
    struct follower_shell *follower;       /* follower; every server has one */
    struct peer_client *client;            /* connection to ps 0; NULL at ps 0 */
};

/* Writes the path of the mark, an empty file that exists while this server runs: a server that
 * finds its own mark at its start was killed before. */
static void up_path(const char *folder, const char *address, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/up-%s", folder, address);
}

void node_ended(const char *folder, const char *address)
{
    char path[PATH_MAX];
    up_path(folder, address, path);
    /* The removal is not synced, since the process could be killed while it waits for the disk.
     * If the machine fails now, the mark reappears, which does little harm. */
    unlink(path);
}

static void mark_up(struct node *s)
{
    char path[PATH_MAX];
    up_path(s->cfg.folder, s->cfg.address, path);
    if (access(path, F_OK) == 0)
        s->over_ms = s->cfg.worker_timeout_ms > OVER_MS ? s->cfg.worker_timeout_ms : OVER_MS;
    else if (durable_put(path, "", 0) != ST_OK)
        LOG_W(
            "if this server is killed at the very end of the job and restarted, it waits for another job; stop it then");
}

/* Finds the folder of --restore's checkpoint or, without --restore, the folder of checkpoints. */
static void find_folder(struct node *s)
{
    struct stat st;
    const char *path = s->cfg.restore ? s->cfg.restore : s->cfg.folder;
    const char *slash = strrchr(path, '/');
    int is_file = s->cfg.restore && stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
    if (!is_file)
        snprintf(s->restore_folder, sizeof s->restore_folder, "%s", path);
    else
        snprintf(s->restore_folder, sizeof s->restore_folder, "%.*s",
                 slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
}

/* Finds the checkpoint that the job restores. ps 0 decides for all servers. */
static enum status find_restore(struct node *s)
{
    const char *path = s->cfg.restore ? s->cfg.restore : s->cfg.folder;
    checkpoint_restore_close(s->restore);
    s->restore = NULL;
    enum status st = checkpoint_restore_find(path, &s->restore);
    if (st == ST_NOT_FOUND && !s->cfg.restore)
        return ST_OK;
    if (st == ST_NOT_FOUND)
        LOG_E("--restore: there is no checkpoint in %s", path);
    if (st != ST_OK)
        return st;
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(s->restore);
    char name[MANIFEST_NAME_BYTES];
    checkpoint_restore_note_home(s->restore, s->cfg.folder);
    checkpoint_manifest_name((struct checkpoint_id){m->generation, m->step}, name);
    snprintf(s->restored, sizeof s->restored, "%s%s", name,
             s->cfg.restore ? PLAN_RESTORE_MARK : "");
    return ST_OK;
}

/* Claims the folder, and then looks for the checkpoint to restore: after the claim the previous
 * owner neither writes nor removes checkpoints. A first look, before the claim, fails if no
 * checkpoint can be restored, so that the previous owner keeps the folder. */
static enum status claim_and_find(struct node *s)
{
    enum status st = ST_OK;
    TRY(find_restore(s));
    st = checkpoint_folder_claim(s->cfg.folder, s->incarnation, s->cfg.ps_hosts->addr[0], 0,
                                 &s->lease, &s->lease);
    s->is_claimed = st == ST_OK;
    if (st != ST_IO && st != ST_FULL) /* training waits for a folder that fails with one of these */
        TRY(st);
    TRY(find_restore(s));
    if (s->restore)
        LOG_I("found a checkpoint at step %" PRId64 ": %s",
              checkpoint_restore_manifest(s->restore)->step,
              s->cfg.restore ? s->cfg.restore : s->cfg.folder);
done:
    return st;
}

/* Reads the list of servers in the folder, if it was made from this --ps_hosts. */
static enum status find_servers(struct node *s)
{
    const struct hosts *given = s->cfg.ps_hosts;
    struct hosts then = {0, NULL}, now = {0, NULL};
    char path[PATH_MAX + 16], *line[2] = {NULL, NULL};
    size_t room[2] = {0, 0};
    snprintf(path, sizeof path, "%s/servers", s->cfg.folder ? s->cfg.folder : "");
    FILE *f = s->cfg.folder ? fopen(path, "r") : NULL;
    for (int i = 0; f && i < 2; i++)
        if (getline(&line[i], &room[i], f) > 0)
            line[i][strcspn(line[i], "\n")] = 0;
    if (f)
        fclose(f);
    int same = line[0] && line[1] && hosts_parse(line[0], path, &then) == ST_OK &&
               hosts_parse(line[1], path, &now) == ST_OK && then.n == given->n && now.n > 0 &&
               strcmp(now.addr[0], given->addr[0]) == 0;
    for (int i = 0; same && i < given->n; i++)
        same = strcmp(then.addr[i], given->addr[i]) == 0;
    const struct hosts *use = same ? &now : given;
    if (s->cfg.folder)
        s->history = checkpoint_history_read(s->cfg.folder);
    if (same && strcmp(line[0], line[1]) != 0)
        LOG_I("servers have joined or left since --ps_hosts was written: %s", line[1]);
    enum status st = hosts_copy((const char *const *)use->addr, (size_t)use->n, &s->servers);
    for (int i = 0; i < 2; i++)
        free(line[i]);
    hosts_free(&then);
    hosts_free(&now);
    return st;
}

enum status node_create(const struct node_config *cfg, struct node **out)
{
    enum status st = ST_OK;
    struct node *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->cfg = *cfg;
    s->incarnation = process_incarnation();
    if (cfg->folder) {
        TRY(checkpoint_folder_make(cfg->folder));
        if (cfg->self == 0)
            TRY(checkpoint_owner_check(cfg->folder, cfg->address, cfg->take_over, &s->lease));
        find_folder(s);
        st = checkpoint_folder_id(cfg->folder, s->folder_id);
        if (st == ST_INVALID)
            goto done;
        if (st != ST_OK)
            LOG_W(
                "%s: cannot determine yet whether other servers share this folder; assuming that they do",
                cfg->folder);
        st = ST_OK;
        if (cfg->self == 0)
            TRY(claim_and_find(s));
    }
    if (cfg->self == 0)
        TRY(find_servers(s));
    if (cfg->folder) /* a failed start leaves no mark */
        mark_up(s);
    *out = s;
    s = NULL;
done:
    node_destroy(s);
    return st;
}

static void on_changed(void *ctx)
{
    struct node *s = ctx;
    if (s->coordinator)
        coordinator_shell_wake(s->coordinator);
    if (s->follower)
        follower_shell_wake(s->follower);
}

static void on_over(void *ctx)
{
    struct node *s = ctx;
    s->cfg.over(s->cfg.ctx);
}

static void on_failed(void *ctx)
{
    struct node *s = ctx;
    s->cfg.failed(s->cfg.ctx);
}

static void on_fenced(void *ctx, int is_unsure)
{
    struct node *s = ctx;
    if (is_unsure) {
        LOG_E(
            "%s does not answer: this process cannot verify that it still owns the job, so it ends without releasing the last step; start ps:0 again with the same flags once the folder answers, and the job resumes from its newest checkpoint",
            s->cfg.folder);
        s->cfg.unsure(s->cfg.ctx);
        return;
    }
    LOG_E("another ps:0 has taken over%s%s: this process ends, and changes nothing",
          s->cfg.folder ? " " : "", s->cfg.folder ? s->cfg.folder : "");
    s->cfg.replaced(s->cfg.ctx);
}

static void on_reply(void *ctx, uint64_t call, const struct net_control_reply *reply)
{
    struct node *s = ctx;
    net_server_control_reply(atomic_load(&s->server), call, reply);
}

/* Creates the coordinator, which then owns the checkpoint to restore. */
static enum status make_coordinator(struct node *s, struct service *service)
{
    struct coordinator_shell_config cfg = {
        .service = service,
        .folder = s->cfg.folder,
        .folder_id = s->folder_id,
        .done_ms = s->over_ms,
        .hosts = s->cfg.ps_hosts,
        .servers = &s->servers,
        .history = s->history,
        .save_steps = s->cfg.save_steps,
        .save_ms = s->cfg.save_ms,
        .keep = s->cfg.keep,
        .restore_path = s->cfg.restore,
        .restore = s->restore,
        .incarnation = s->incarnation,
        .lease = s->lease,
        .is_claimed = s->is_claimed,
        .max_model_bytes = s->cfg.max_model_bytes,
        .worker_timeout_ms = s->cfg.worker_timeout_ms,
        .min_workers = s->cfg.min_workers,
        .serves = s->cfg.serves,
        .reply = on_reply,
        .fenced = on_fenced,
        .done = on_over,
        .failed = on_failed,
        .region = s->cfg.region,
        .ctx = s,
    };
    if (s->restore)
        admission_fix_format(service, &checkpoint_restore_manifest(s->restore)->job);
    /* After a kill at the very end, workers do not wait for worker 0, which may have left: the
     * server would exit before that wait ends. */
    if (checkpoint_restore_has_all_steps(s->restore))
        admission_set_all_steps(service, s->over_ms ? 0 : s->cfg.worker_timeout_ms);
    memcpy(cfg.restored, s->restored, sizeof cfg.restored);
    s->restore = NULL;
    return coordinator_shell_create(&cfg, &s->coordinator);
}

static enum status call_ps0(void *peer, const struct net_control *request, int64_t deadline_ms,
                            struct net_control_reply *reply, char *why)
{
    return peer_client_control(peer, request, deadline_ms, reply, why);
}

static void cancel_ps0(void *peer)
{
    peer_client_cancel(peer);
}

/* Creates the follower. ps 0 follows itself, without a call over the net. */
static enum status make_follower(struct node *s, struct service *service)
{
    enum status st = ST_OK;
    bool is_first = s->cfg.self == 0;
    struct follower_shell_config cfg = {
        .service = service,
        .writer = s->writer,
        .addr = s->cfg.ps_hosts->addr[0],
        .address = s->cfg.address,
        .folder = s->cfg.folder,
        .folder_id = s->folder_id,
        .own_folder = s->own_folder,
        .restore_folder = s->cfg.folder ? s->restore_folder : NULL,
        .self = s->cfg.self,
        .n_servers = s->cfg.ps_hosts->n,
        .joining = s->cfg.joining,
        .done_ms = is_first ? 0 : s->over_ms,
        .call = is_first ? coordinator_shell_call : call_ps0,
        .cancel = is_first ? coordinator_shell_cancel : cancel_ps0,
        .peer = s->coordinator,
        .refused = s->cfg.refused,
        .drained = s->cfg.over,
        .failed = s->cfg.failed,
        .ctx = s->cfg.ctx,
    };
    if (!is_first) {
        TRY(peer_client_create(cfg.addr, &s->client));
        cfg.peer = s->client;
    }
    TRY(follower_shell_create(&cfg, &s->follower));
done:
    return st;
}

enum status node_start(struct node *s, struct service *service)
{
    enum status st = ST_OK;
    struct checkpoint_writer_config writer = {
        .service = service,
        .folder = s->cfg.folder,
        .changed = on_changed,
        .ctx = s,
    };
    const struct own_folder_config own_folder = {.folder = s->cfg.folder,
                                                 .address = s->cfg.address,
                                                 .folder_id = s->folder_id,
                                                 .changed = on_changed,
                                                 .ctx = s};
    if (s->cfg.folder)
        TRY(checkpoint_writer_create(&writer, &s->writer));
    if (s->cfg.folder && s->cfg.self != 0)
        TRY(own_folder_create(&own_folder, &s->own_folder));
    if (s->cfg.self == 0)
        TRY(make_coordinator(s, service));
    TRY(make_follower(s, service));
done:
    return st;
}

enum status node_serve(struct node *s)
{
    enum status st = ST_OK;
    if (s->coordinator)
        TRY(coordinator_shell_start(s->coordinator));
    TRY(follower_shell_start(s->follower));
done:
    return st;
}

void node_control(struct node *s, struct net_server *server, const struct net_control *request,
                  uint64_t call)
{
    atomic_store(&s->server, server);
    if (s->coordinator)
        coordinator_shell_control(s->coordinator, request, call);
    else
        net_server_control_reply(server, call, NULL);
}

void node_control_closed(struct node *s, uint64_t call)
{
    if (s->coordinator)
        coordinator_shell_control_closed(s->coordinator, call);
}

enum status node_first_join(struct node *s, const struct net_join *join, char *why,
                            size_t why_bytes)
{
    return s->coordinator ? coordinator_plans_first_join(s->coordinator, join, why, why_bytes)
                          : ST_OK;
}

void node_changed(struct node *s)
{
    on_changed(s);
}

void node_leave(struct node *s)
{
    if (!s->coordinator)
        follower_shell_leave(s->follower);
}

struct coordinator_shell *node_coordinator(struct node *s)
{
    return s->coordinator;
}

void node_request(struct node *s)
{
    if (s->coordinator)
        coordinator_shell_request(s->coordinator);
    else
        follower_shell_want(s->follower);
}

bool node_finish(struct node *s)
{
    if (s->coordinator)
        return coordinator_shell_finish(s->coordinator);
    follower_shell_finish(s->follower);
    return true;
}

void node_destroy(struct node *s)
{
    if (!s)
        return;
    /* a follower that runs would call a coordinator that does not answer any more */
    follower_shell_stop(s->follower);
    coordinator_shell_stop(s->coordinator);
    checkpoint_writer_destroy(s->writer); /* reports its last change to the follower */
    own_folder_destroy(s->own_folder, clock_deadline_ns(TIDY_MS)); /* reports, too */
    follower_shell_destroy(s->follower);
    coordinator_shell_destroy(s->coordinator);
    peer_client_destroy(s->client);
    checkpoint_restore_close(s->restore);
    hosts_free(&s->servers);
    free(s);
}
