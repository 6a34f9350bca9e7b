/* tests/sim/watch.c - checks the decisions of ps 0's coordinator, and the checkpoints that servers
 * write and read (--wrap; server.h). ps 0 abandons work only if a process that held chunks is lost,
 * or an operator abandons it; a checkpoint's files have the right bits, of one step, of the servers
 * of its generation. Also causes lack of memory and damaged files. */
#include "base/term.h"
#include "checkpoint/folder.h"
#include "checkpoint/restore.h"
#include "ps/checkpoint/snapshot_file.h"
#include "ps/coordinator/coordinator_shell_impl.h"
#include "tests/sim/disk.h"
#include "tests/sim/lineage.h"
#include "tests/sim/oracle_rows.h"
#include "tests/sim/patches.h"
#include "tests/sim/server.h"
#include "tests/sim/tables.h"
#include "tests/sim/worker.h"
#include <string.h>

/* silence after which ps 0 may abandon a server in its next step: SILENT_MS less one step */
enum { GONE_MS = 14000 };
enum { MOST_SERVERS = 12, MOST_WORKERS = 16 };
enum { KEPT_PLANS = COORDINATOR_KEPT_PLANS };

struct watch {
    /* kept: copies, the newest last; plan: the plan in force */
    const struct net_plan *kept[KEPT_PLANS], *plan;
    uint32_t life[KEPT_PLANS][SIM_SERVERS]; /* servers' lives when a kept plan was made */
    uint32_t drained[SIM_SERVERS]; /* lives of servers when an operator drained them; 0: none */
    /* lives of servers that were silent when they were drained: ps 0 does not wait for these */
    uint32_t silent[SIM_SERVERS];
    /* lives of servers that were slow to hand on their chunks when they were drained */
    uint32_t slow[SIM_SERVERS];
    /* lives of servers that were silent or slow when ps 0 last looked for a checkpoint */
    uint32_t given_up[SIM_SERVERS];
    int64_t planned_ns;  /* time at which the plan in force was made */
    uint64_t works_lost; /* generation whose work was abandoned for a drained server; 0: none */
    uint64_t base;       /* generation that the next plan continues */
    int64_t roster_ns;   /* time at which the coordinator last received the roster */
    int64_t joined_ns[SIM_NODES]; /* time at which ps 0 admitted the process */
    bool has_claimed;
    struct checkpoint_id claimed; /* newest checkpoint when this ps 0 first claimed the folder */
};

struct watch *watch_create(void)
{
    return sim_alloc(sizeof(struct watch));
}

/* Returns the watch of ps 0 if the running node is a live ps 0; else NULL. */
static struct watch *running_watch(void)
{
    struct server *s = sim.schedule && sim.running == 0 ? sim_server(0) : NULL;
    return s && !s->is_dying ? s->watch : NULL;
}

static int slot_of(const struct coordinator_state *c, const char *address)
{
    for (int i = 0; i < coordinator_view_n_servers(c); i++)
        if (!strcmp(coordinator_view_server_address(c, i), address))
            return i;
    return -1;
}

/* Returns for how long ps 0's last step has counted a server as silent; -1: unknown. */
static int64_t silent_ms(const struct coordinator_state *c, const char *address)
{
    struct coordinator_server_view v;
    int slot = slot_of(c, address);
    if (slot < 0)
        return -1;
    coordinator_view_server(c, slot, &v);
    return v.heard_ms;
}

/* Notes which server an operator drains, according to ps 0's answer to the operator. */
static void note_drain(struct watch *w, const struct coordinator_state *c, int index)
{
    char why[CONTROL_TEXT_BYTES], address[CONTROL_TEXT_BYTES];
    if (!coordinator_command_text(c, COORDINATOR_DRAIN_SERVER, index, why, sizeof why) ||
        sscanf(why, "ps:%*d (%255[^)])", address) != 1)
        return;
    int node = sim_server_at(address);
    uint32_t life = sim.node[node].life;
    if (silent_ms(c, address) >= GONE_MS)
        w->silent[node] = life;
    else if (w->drained[node] == life && sim.now - w->planned_ns >= GONE_MS * SIM_MS)
        w->slow[node] = life;
    w->drained[node] = life;
}

/* Reduces the coordinator's state to the servers and workers of a schedule, which saves time. */
size_t __real_coordinator_bytes(int max_servers, int max_workers);
size_t __wrap_coordinator_bytes(int max_servers, int max_workers);
size_t __wrap_coordinator_bytes(int max_servers, int max_workers)
{
    return __real_coordinator_bytes(MOST_SERVERS, MOST_WORKERS);
}

void __real_coordinator_init(struct coordinator_state *c, int max_servers, int max_workers);
void __wrap_coordinator_init(struct coordinator_state *c, int max_servers, int max_workers);
void __wrap_coordinator_init(struct coordinator_state *c, int max_servers, int max_workers)
{
    __real_coordinator_init(c, MOST_SERVERS, MOST_WORKERS);
}

void watch_joined(struct watch *w, int node)
{
    w->joined_ns[node] = sim.now;
}

/* Checks that no member on the coordinator's last roster still trains. */
static void check_failed(const struct watch *w)
{
    const struct net_plan *p = w->plan;
    for (int i = SIM_SERVERS; i < SIM_NODES && p; i++) {
        if (sim.node[i].state == NODE_UP && worker_trains_in(i, p->generation, p->ps0) &&
            w->joined_ns[i] < w->roster_ns)
            sim_fail("end", "ps 0 finds that the job has failed, but %s still trains",
                     sim.node[i].name);
    }
}

void __real_coordinator_step(struct coordinator_state *c, const struct coordinator_event *e,
                             int64_t now_ns, struct coordinator_out *out);
void __wrap_coordinator_step(struct coordinator_state *c, const struct coordinator_event *e,
                             int64_t now_ns, struct coordinator_out *out);
void __wrap_coordinator_step(struct coordinator_state *c, const struct coordinator_event *e,
                             int64_t now_ns, struct coordinator_out *out)
{
    struct watch *w = running_watch();
    if (w && e->kind == COORDINATOR_COMMAND && e->command.what == COORDINATOR_DRAIN_SERVER)
        note_drain(w, c, e->command.index);
    if (w && e->kind == COORDINATOR_WORKERS)
        w->roster_ns = sim.now;
    __real_coordinator_step(c, e, now_ns, out);
    if (!w)
        return;
    for (int i = 0; i < out->n; i++)
        if (out->act[i].kind == ACT_FAILED)
            check_failed(w);
    sim_digest(coordinator_view_generation(c) ^ (uint64_t)out->n << 32);
    if (e->kind == COORDINATOR_CONTROL && silent_ms(c, e->control->address) == 0)
        /* the server has called, so ps 0 waits for it again */
        w->silent[sim_server_at(e->control->address)] = 0;
}

static bool is_given_up(const struct watch *w, int node)
{
    uint32_t life = sim.node[node].life;
    return w->silent[node] == life || w->slow[node] == life || w->given_up[node] == life;
}

/* Returns true if the next plan replaces the plan in force before all its servers have made a
 * step, and that plan did not continue from memory: the work was lost before it. */
static bool begins_again(const struct watch *w)
{
    const struct net_plan *p = w->plan;
    int n = 0;
    if (!p || p->generation == w->base || p->source == PLAN_MEMORY)
        return false;
    for (int i = 0; i < p->servers.n; i++) {
        struct server *s = sim_server(sim_server_at(p->servers.addr[i]));
        struct generation_state is = {.generation = 0};
        if (s)
            generation_state(s->service, &is);
        n += is.generation == p->generation && is.lowest > p->step;
    }
    return n < p->servers.n;
}

/* Checks that ps 0 abandons work only if a process that held chunks has died, or an operator
 * drained it while it was silent or slow. */
static void check_work(struct watch *w, const struct coordinator_plan_view *v)
{
    if (w->works_lost == v->base || begins_again(w))
        return;
    for (int k = 0; k < KEPT_PLANS; k++) {
        const struct net_plan *p = w->kept[k];
        if (!p || p->generation != v->base)
            continue;
        for (int i = 0; i < p->servers.n; i++) {
            int node = sim_server_at(p->servers.addr[i]);
            if (!sim_server(node) || sim.node[node].life != w->life[k][node])
                return;
            if (is_given_up(w, node)) {
                w->works_lost = v->base;
                return;
            }
        }
    }
    sim_fail("work", "ps 0 rolls back to step %lld, though no server has lost its chunks",
             (long long)v->step);
}

static bool has_values(const struct coordinator_shell *l)
{
    struct generation_state own;
    generation_state(l->cfg.service, &own);
    return own.lowest > 0;
}

enum status __real_coordinator_plan_make(struct coordinator_shell *l, struct net_plan **out);
enum status __wrap_coordinator_plan_make(struct coordinator_shell *l, struct net_plan **out);
enum status __wrap_coordinator_plan_make(struct coordinator_shell *l, struct net_plan **out)
{
    struct watch *w = running_watch();
    struct coordinator_plan_view v;
    if (!w)
        return __real_coordinator_plan_make(l, out);
    if (sim_chance(&sim.memory, (int)opt(OPT_no_memory)))
        return ST_NOMEM;
    coordinator_view_next_plan(l->state, &v);
    w->base = v.base;
    if (v.base && (v.source == PLAN_CHECKPOINT || (v.source == PLAN_FIRST && has_values(l))))
        check_work(w, &v);
    return __real_coordinator_plan_make(l, out);
}

/* Returns the history that the folder has recorded. */
static struct checkpoint_history recorded_history(void)
{
    struct checkpoint_history h = {{0, 0}, 0};
    size_t bytes;
    const char *text = disk_peek("servers", &bytes);
    FILE *f = bytes > 0 ? fmemopen((void *)text, bytes, "r") : NULL;
    if (f) {
        h = checkpoint_history_parse(f);
        fclose(f);
    }
    return h;
}

/* Returns the newest checkpoint in the folder; generation 0: none. */
static struct checkpoint_id newest_checkpoint(void)
{
    const struct checkpoint_history history = recorded_history();
    struct checkpoint_id newest = {0, 0};
    struct checkpoint_name is;
    int at = 0;
    for (const char *text; (text = disk_next_name(&at));) {
        checkpoint_name_parse(text, &is);
        if (is.kind == CHECKPOINT_NAME_MANIFEST && !is.old &&
            checkpoint_names_compare(is.id, newest) > 0 &&
            !checkpoint_history_lacks(&history, is.id))
            newest = is.id;
    }
    return newest;
}

enum status __real_checkpoint_folder_claim(const char *folder, uint64_t incarnation,
                                           const char *address, uint64_t above,
                                           const struct checkpoint_lease *looked_at,
                                           struct checkpoint_lease *out);
enum status __wrap_checkpoint_folder_claim(const char *folder, uint64_t incarnation,
                                           const char *address, uint64_t above,
                                           const struct checkpoint_lease *looked_at,
                                           struct checkpoint_lease *out);
enum status __wrap_checkpoint_folder_claim(const char *folder, uint64_t incarnation,
                                           const char *address, uint64_t above,
                                           const struct checkpoint_lease *looked_at,
                                           struct checkpoint_lease *out)
{
    struct watch *w = running_watch();
    enum status st =
        __real_checkpoint_folder_claim(folder, incarnation, address, above, looked_at, out);
    if (w && st == ST_OK && !w->has_claimed) {
        w->has_claimed = true;
        w->claimed = newest_checkpoint();
    }
    return st;
}

/* Returns true if the node reads this checkpoint damaged. The checkpoint then stays damaged for the
 * node. */
static bool reads_damaged(const struct sim_node *n, struct checkpoint_id id)
{
    for (int i = 0; i < n->n_damaged; i++)
        if (n->damaged[i].generation == id.generation && n->damaged[i].step == id.step)
            return true;
    return false;
}

static bool is_damaged_anywhere(struct checkpoint_id id)
{
    for (int i = 0; i < SIM_SERVERS; i++)
        if (reads_damaged(&sim.node[i], id))
            return true;
    return false;
}

/* Checks that a ps 0 restores no checkpoint that is older than the newest one at the time of its
 * first claim, after which it looks for one, unless a server finds that newest one damaged. */
static void check_restored(const struct watch *w, const struct net_plan *first)
{
    struct checkpoint_name is = {.kind = CHECKPOINT_NAME_OTHER};
    if (first->source == PLAN_CHECKPOINT)
        checkpoint_name_parse(first->restore, &is);
    if (is_damaged_anywhere(w->claimed))
        return;
    if (checkpoint_names_compare(is.id, w->claimed) < 0)
        sim_fail("restore", "ps 0 restores step %lld, but the newest checkpoint is of step %lld",
                 (long long)is.id.step, (long long)w->claimed.step);
}

static void keep_plan(struct watch *w, const struct net_plan *next)
{
    int out = 0, n;
    while (out < KEPT_PLANS - 1 && w->kept[out] && w->kept[out]->generation == w->base)
        out++;
    n = KEPT_PLANS - 1 - out;
    memmove(w->kept + out, w->kept + out + 1, (size_t)n * sizeof *w->kept);
    memmove(w->life + out, w->life + out + 1, (size_t)n * sizeof *w->life);
    w->kept[KEPT_PLANS - 1] = w->plan = next;
    w->planned_ns = sim.now;
    for (int i = 0; i < SIM_SERVERS; i++)
        w->life[KEPT_PLANS - 1][i] = sim.node[i].life;
}

void __real_coordinator_plan_publish(struct coordinator_shell *l, struct net_plan *next);
void __wrap_coordinator_plan_publish(struct coordinator_shell *l, struct net_plan *next);
void __wrap_coordinator_plan_publish(struct coordinator_shell *l, struct net_plan *next)
{
    struct watch *w = running_watch();
    struct net_plan *copy;
    if (w) {
        CHECK(net_plan_copy(next, &copy) == ST_OK);
        sim_keep_plan(copy);
        if (!w->plan)
            check_restored(w, copy);
        keep_plan(w, copy);
        STORY("ps 0 plans generation " TERM_FMT " from step %lld: %d workers, %d servers",
              TERM_ARG(copy->generation), (long long)copy->step, copy->n_members, copy->servers.n);
        oracle_planned(copy);
        sim_mark(MARK_plan);
    }
    __real_coordinator_plan_publish(l, next);
}

void __real_coordinator_disk_order(struct coordinator_shell *l, const struct coordinator_action *a);
void __wrap_coordinator_disk_order(struct coordinator_shell *l, const struct coordinator_action *a);
void __wrap_coordinator_disk_order(struct coordinator_shell *l, const struct coordinator_action *a)
{
    struct watch *w = running_watch();
    for (int i = 0; w && i < SIM_SERVERS && a->disk == DISK_FIND; i++)
        w->given_up[i] = w->silent[i] ? w->silent[i] : w->slow[i];
    __real_coordinator_disk_order(l, a);
}

/* Checks that a server's file of a checkpoint has the right bits of one step. */
static void check_file(const struct checkpoint_shard_file *cp, const struct snapshot *from)
{
    int n;
    const struct snapshot_chunk *c = snapshot_chunks(from, &n);
    for (int i = 0; i < n; i++) {
        if (!tables_is_bucket(c[i].chunk))
            oracle_version((struct oracle_place){sim.running, cp->generation, c[i].chunk},
                           c[i].version, (const float *)c[i].value->data,
                           c[i].slots ? (const float *)c[i].slots->data : NULL, "in a checkpoint");
        if (job_in_lockstep(&sim_job) && c[i].version != cp->step)
            sim_fail("I7", "a checkpoint of step %lld has a chunk of step %lld",
                     (long long)cp->step, (long long)c[i].version);
    }
}

enum status __real_snapshot_file_write(const struct checkpoint_shard_file *cp,
                                       struct snapshot *from, struct safetensors_written *out);
enum status __wrap_snapshot_file_write(const struct checkpoint_shard_file *cp,
                                       struct snapshot *from, struct safetensors_written *out);
enum status __wrap_snapshot_file_write(const struct checkpoint_shard_file *cp,
                                       struct snapshot *from, struct safetensors_written *out)
{
    struct server *s = sim_server(sim.running);
    if (s && !s->is_dying) {
        check_file(cp, from);
        s->writes = (struct checkpoint_id){cp->generation, cp->step};
    }
    enum status st = __real_snapshot_file_write(cp, from, out);
    if (s)
        s->writes.generation = 0;
    return st;
}

/* Checks the rows that are copied to a file. Other copies have parts of one to three entries, so
 * that a bucket moves in several parts. */
enum status __real_bucket_copy(struct shared_bucket *s, uint64_t version, const uint64_t *after,
                               size_t most, struct bucket_part *out);
enum status __wrap_bucket_copy(struct shared_bucket *s, uint64_t version, const uint64_t *after,
                               size_t most, struct bucket_part *out);
enum status __wrap_bucket_copy(struct shared_bucket *s, uint64_t version, const uint64_t *after,
                               size_t most, struct bucket_part *out)
{
    struct server *server = sim_is_server(sim.running) ? sim_server(sim.running) : NULL;
    bool is_file = most == SIZE_MAX;
    if (!is_file)
        most = 1 + version % 3;
    enum status st = __real_bucket_copy(s, version, after, most, out);
    if (!is_file || !server || server->is_dying || !server->writes.generation)
        return st;
    if (st == ST_NOT_FOUND)
        sim_fail("I7", "a checkpoint needs version %llu of a bucket, which is gone",
                 (unsigned long long)version);
    if (st == ST_OK) {
        const struct oracle_part part = {.version = (int64_t)version, .entries = out->entries};
        int chunk = tables_chunk(&s->bucket->config);
        oracle_rows_part((struct oracle_place){sim.running, server->writes.generation, chunk},
                         &part, "in a checkpoint");
        patches_note(server->writes, chunk, part.version, &out->entries);
    }
    return st;
}

/* Checks that a manifest names a file of each server of its generation's plan, and the restores
 * before it. */
static void check_manifest(const struct watch *w, const struct checkpoint_manifest *m)
{
    for (int i = 0; i < KEPT_PLANS; i++) {
        const struct net_plan *p = w->kept[i];
        if (!p || p->generation != m->generation)
            continue;
        if (p->servers.n != m->n_files)
            sim_fail("manifest",
                     "the manifest of step %lld names %d files, but its generation has %d servers",
                     (long long)m->step, m->n_files, p->servers.n);
        lineage_check(m, p->ps0);
    }
}

enum status __real_checkpoint_folder_check_files(const char *folder,
                                                 const struct checkpoint_manifest *m,
                                                 const struct checkpoint_folder_check *how,
                                                 char why[MANIFEST_WHY_BYTES]);
enum status __wrap_checkpoint_folder_check_files(const char *folder,
                                                 const struct checkpoint_manifest *m,
                                                 const struct checkpoint_folder_check *how,
                                                 char why[MANIFEST_WHY_BYTES]);
enum status __wrap_checkpoint_folder_check_files(const char *folder,
                                                 const struct checkpoint_manifest *m,
                                                 const struct checkpoint_folder_check *how,
                                                 char why[MANIFEST_WHY_BYTES])
{
    struct watch *w = running_watch();
    if (w)
        check_manifest(w, m);
    return __real_checkpoint_folder_check_files(folder, m, how, why);
}

/* Returns true if the folder has the files of all servers of a checkpoint. The manifest alone does
 * not show it: if a file server renames the manifest late, servers may have removed files of this
 * checkpoint before. */
static bool has_files(struct checkpoint_id id)
{
    struct checkpoint_name is;
    int at = 0, n = 0, n_servers = 0;
    for (const char *text; (text = disk_next_name(&at));) {
        checkpoint_name_parse(text, &is);
        if (is.kind == CHECKPOINT_NAME_FILE && checkpoint_names_compare(is.id, id) == 0) {
            n++;
            n_servers = is.n_servers;
        }
    }
    return n > 0 && n == n_servers;
}

/* Returns true if the folder has a complete checkpoint that is older than the given one, and that
 * all servers can read. */
static bool has_older(struct checkpoint_id than)
{
    struct checkpoint_name is;
    int at = 0;
    for (const char *text; (text = disk_next_name(&at));) {
        checkpoint_name_parse(text, &is);
        if (is.kind == CHECKPOINT_NAME_MANIFEST && !is.old &&
            checkpoint_names_compare(is.id, than) < 0 && !is_damaged_anywhere(is.id) &&
            has_files(is.id))
            return true;
    }
    return false;
}

/* Returns true if this server reads the checkpoint damaged. A checkpoint is made damaged only if an
 * older one exists, because the job could not continue without any. */
static bool is_damaged(const struct checkpoint_restore *r)
{
    struct sim_node *n = &sim.node[sim.running];
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(r);
    const struct checkpoint_id id = {m->generation, m->step};
    if (n->reads_damaged && n->n_damaged < SIM_DAMAGED && has_older(id)) {
        n->reads_damaged = false;
        n->damaged[n->n_damaged++] = (struct sim_checkpoint){id.generation, id.step};
    }
    if (!reads_damaged(n, id))
        return false;
    STORY("%s finds the checkpoint of step %lld damaged", n->name, (long long)id.step);
    sim_mark(MARK_unread);
    return true;
}

void __real_generation_stop(struct service *s);
void __wrap_generation_stop(struct service *s);
void __wrap_generation_stop(struct service *s)
{
    struct server *server = sim_is_server(sim.running) ? sim_server(sim.running) : NULL;
    if (server && !server->is_dying) {
        STORY("%s stops", sim.node[sim.running].name);
        sim_mark(MARK_stop);
    }
    __real_generation_stop(s);
}

enum status __real_generation_begin(struct service *s, const struct net_plan *plan,
                                    const struct checkpoint_restore *restore);
enum status __wrap_generation_begin(struct service *s, const struct net_plan *plan,
                                    const struct checkpoint_restore *restore);
enum status __wrap_generation_begin(struct service *s, const struct net_plan *plan,
                                    const struct checkpoint_restore *restore)
{
    struct server *server = sim_is_server(sim.running) ? sim_server(sim.running) : NULL;
    struct sim_node *n = &sim.node[sim.running];
    if (server && !server->is_dying && n->begin_fails) {
        n->begin_fails--;
        return ST_NOMEM;
    }
    if (server && !server->is_dying && restore && is_damaged(restore))
        return ST_CORRUPT;
    return __real_generation_begin(s, plan, restore);
}
