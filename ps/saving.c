/* ps/saving.c - see saving.h. */
#include "ps/saving.h"
#include "base/log.h"
#include "files/durable.h"
#include "net/server.h"
#include "ps/follow.h"
#include "ps/restore.h"
#include "ps/taker.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OVER_MS = 10000 }; /* for others to come to a job that may be over, at least */

struct saving {
    struct saving_config cfg;
    char restore_folder[PATH_MAX];
    /* Of ps 0, until it starts: */
    struct ps_restore *restore;
    struct hosts servers;
    uint64_t generation;
    int64_t over_ms; /* as in lead.h, follow.h */
    char restored[CONTROL_TEXT_BYTES];
    struct net_server *_Atomic server; /* that calls come by */
    struct saver *saver;
    struct lead *lead;     /* ps 0 */
    struct follow *follow; /* the others */
};

/* What says that this server is up: who finds his own when he starts was killed. */
static void up_path(const char *folder, const char *address, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/up-%s", folder, address);
}

void saving_ended(const char *folder, const char *address)
{
    char path[PATH_MAX];
    up_path(folder, address, path);
    durable_remove(path);
}

static void mark_up(struct saving *s)
{
    char path[PATH_MAX];
    up_path(s->cfg.folder, s->cfg.address, path);
    if (access(path, F_OK) == 0)
        s->over_ms = s->cfg.worker_timeout_ms > OVER_MS ? s->cfg.worker_timeout_ms : OVER_MS;
    else if (durable_put(path, "", 0) != ST_OK)
        LOG_W("if this server is killed at the job's very end, its next life waits for the next "
              "job; stop it then");
}

static enum status make_folder(const char *path)
{
    struct stat s;
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        enum status st = status_of_errno(errno);
        LOG_E("--checkpoint_dir: %s cannot be made: %s", path, strerror(errno));
        return st;
    }
    if (stat(path, &s) != 0 || !S_ISDIR(s.st_mode)) {
        LOG_E("--checkpoint_dir: %s is no folder", path);
        return ST_INVALID;
    }
    return ST_OK;
}

/* The folder of what --restore names, or the checkpoints' own. */
static void find_folder(struct saving *s)
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

/* What the job goes on from; ps 0 decides for all. */
static enum status find_restore(struct saving *s)
{
    const char *path = s->cfg.restore ? s->cfg.restore : s->cfg.folder;
    enum status st = ps_restore_find(path, &s->restore);
    if (st == ST_NOT_FOUND && !s->cfg.restore)
        return ST_OK;
    if (st == ST_NOT_FOUND)
        LOG_E("--restore: there is no checkpoint in %s", path);
    if (st != ST_OK)
        return st;
    int64_t step = ps_restore_manifest(s->restore)->step;
    char name[MANIFEST_NAME_BYTES];
    ps_manifest_name(step, name);
    snprintf(s->restored, sizeof s->restored, "%s%s", name,
             s->cfg.restore ? TAKER_RESTORE_MARK : "");
    LOG_I("found a checkpoint at step %" PRId64 ": %s", step, path);
    return ST_OK;
}

/* The servers that the folder names, if they were made of this --ps_hosts. */
static enum status find_servers(struct saving *s)
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
    if (same && strcmp(line[0], line[1]) != 0)
        LOG_I("servers have joined or left since --ps_hosts was given: %s", line[1]);
    enum status st = hosts_copy((const char *const *)use->addr, (size_t)use->n, &s->servers);
    for (int i = 0; i < 2; i++)
        free(line[i]);
    hosts_free(&then);
    hosts_free(&now);
    return st;
}

/* A number that none of this folder's servers has used: workers see by it that they have to go
 * back. */
static void choose_generation(struct saving *s)
{
    char path[PATH_MAX + 16], text[32];
    uint64_t last = s->restore ? ps_restore_manifest(s->restore)->generation : 0, used = 0;
    s->generation = 1;
    if (!s->cfg.folder)
        return;
    snprintf(path, sizeof path, "%s/generation", s->cfg.folder);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%" SCNu64, &used) == 1 && used > last && used < UINT32_MAX)
        last = used;
    if (f)
        fclose(f);
    s->generation = last + 1;
    int n = snprintf(text, sizeof text, "%" PRIu64 "\n", s->generation);
    if (durable_put(path, text, (size_t)n) != ST_OK)
        LOG_W("workers that live on may not see that this server was started anew; start them "
              "again, too");
}

enum status saving_create(const struct saving_config *cfg, struct saving **out)
{
    enum status st = ST_OK;
    struct saving *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->cfg = *cfg;
    if (cfg->folder) {
        TRY(make_folder(cfg->folder));
        find_folder(s);
        mark_up(s);
        if (cfg->self == 0)
            TRY(find_restore(s));
    }
    if (cfg->self == 0) {
        TRY(find_servers(s));
        choose_generation(s);
    }
    *out = s;
    s = NULL;
done:
    saving_destroy(s);
    return st;
}

static void on_changed(void *ctx)
{
    struct saving *s = ctx;
    if (s->lead)
        lead_wake(s->lead);
    else if (s->follow)
        follow_wake(s->follow);
}

static void on_over(void *ctx)
{
    struct saving *s = ctx;
    s->cfg.over(s->cfg.ctx);
}

static void on_reply(void *ctx, uint64_t call, const struct net_control_reply *reply)
{
    struct saving *s = ctx;
    net_server_control_reply(atomic_load(&s->server), call, reply);
}

/* Gives away what the lead is to own. */
static enum status start_lead(struct saving *s, struct ps_service *service)
{
    enum status st = ST_OK;
    struct lead_config cfg = {
        .service = service,
        .saver = s->saver,
        .folder = s->cfg.folder,
        .over_ms = s->over_ms,
        .hosts = s->cfg.ps_hosts,
        .servers = s->servers,
        .save_steps = s->cfg.save_steps,
        .save_ms = s->cfg.save_ms,
        .keep = s->cfg.keep,
        .restore_path = s->cfg.restore,
        .restore = s->restore,
        .generation = s->generation,
        .max_model_bytes = s->cfg.max_model_bytes,
        .worker_timeout_ms = s->cfg.worker_timeout_ms,
        .min_workers = s->cfg.min_workers,
        .reply = on_reply,
        .over = on_over,
        .ctx = s,
    };
    memcpy(cfg.restored, s->restored, sizeof cfg.restored);
    s->restore = NULL;
    s->servers = (struct hosts){0, NULL};
    TRY(lead_create(&cfg, &s->lead));
    TRY(lead_start(s->lead));
done:
    return st;
}

static enum status start_follow(struct saving *s, struct ps_service *service)
{
    enum status st = ST_OK;
    struct follow_config cfg = {
        .service = service,
        .saver = s->saver,
        .addr = s->cfg.ps_hosts->addr[0],
        .address = s->cfg.address,
        .folder = s->cfg.folder,
        .over_ms = s->over_ms,
        .restore_folder = s->cfg.folder ? s->restore_folder : NULL,
        .self = s->cfg.self,
        .n_servers = s->cfg.ps_hosts->n,
        .joining = s->cfg.joining,
        .refused = s->cfg.refused,
        .drained = s->cfg.over,
        .ctx = s->cfg.ctx,
    };
    TRY(follow_create(&cfg, &s->follow));
    TRY(follow_start(s->follow));
done:
    return st;
}

enum status saving_start(struct saving *s, struct ps_service *service)
{
    enum status st = ST_OK;
    struct saver_config saver = {
        .service = service,
        .folder = s->cfg.folder,
        .changed = on_changed,
        .ctx = s,
    };
    if (s->cfg.folder)
        TRY(saver_create(&saver, &s->saver));
    TRY(s->cfg.self == 0 ? start_lead(s, service) : start_follow(s, service));
done:
    return st;
}

void saving_control(struct saving *s, struct net_server *server, const struct net_control *request,
                    uint64_t call)
{
    atomic_store(&s->server, server);
    if (s->lead)
        lead_control(s->lead, request, call);
    else
        net_server_control_reply(server, call, NULL);
}

void saving_control_closed(struct saving *s, uint64_t call)
{
    if (s->lead)
        lead_control_closed(s->lead, call);
}

enum status saving_first_join(struct saving *s, const struct net_join *join, char *why,
                              size_t why_bytes)
{
    return s->lead ? lead_first_join(s->lead, join, why, why_bytes) : ST_OK;
}

void saving_changed(struct saving *s)
{
    on_changed(s);
}

void saving_leave(struct saving *s)
{
    if (s->follow)
        follow_leave(s->follow);
}

struct lead *saving_lead(struct saving *s)
{
    return s->lead;
}

void saving_request(struct saving *s)
{
    if (s->lead)
        lead_request(s->lead);
    else
        follow_request(s->follow);
}

void saving_finish(struct saving *s)
{
    if (s->lead)
        lead_finish(s->lead);
    else
        follow_finish(s->follow);
}

void saving_destroy(struct saving *s)
{
    if (!s)
        return;
    lead_stop(s->lead);
    follow_stop(s->follow);
    saver_destroy(s->saver); /* tells them of its last change */
    lead_destroy(s->lead);
    follow_destroy(s->follow);
    ps_restore_close(s->restore);
    hosts_free(&s->servers);
    free(s);
}
