/* tests/sim/follow.c - see server.h: the shell of a follower, as follower_shell.c, plan_applier.c
 * and checkpoint_writer.c are: calls to ps 0, plans begun aside, this server's part of checkpoints.
 */
#include "base/digest.h"
#include "base/term.h"
#include "ps/service/run.h"
#include "ps/store/snapshot.h"
#include "tests/sim/server.h"
#include <stdlib.h>
#include <string.h>

enum { CALL_MS = 12000, LAST_MS = 60000, LOOK_MS = 500, AGAIN_MS = 500 };

static void follow_step(struct server *s, const struct follower_event *e);

static void post_news(struct server *s)
{
    if (s->news_posted)
        return;
    s->news_posted = 1;
    sim_timer(s->node, sim_below(&sim.node[s->node].random, 300) * 1000, TIMER_NEWS, 0);
}

/* Something has changed: the thread looks, and the call under way is ended. */
void follow_news(struct server *s, int changed)
{
    s->changed |= changed;
    post_news(s);
}

static void set_phase(struct server *s, enum control_phase phase)
{
    s->part.phase = (int)phase;
    post_news(s);
}

static void drop_snapshot(struct server *s)
{
    snapshot_destroy(s->snapshot);
    run_unref(s->snapshot_run);
    s->snapshot = NULL;
    s->snapshot_run = NULL;
}

static void on_captured(void *ctx)
{
    struct server *s = ctx;
    s->captured = 1;
    post_news(s);
}

static void order(struct server *s, const struct follower_action *a)
{
    int ended;
    s->part.order = a->order;
    s->part_step = a->step;
    if (s->writing) { /* an earlier one is still being written, see checkpoint_writer_state */
        set_phase(s, CONTROL_PAST);
        return;
    }
    drop_snapshot(s);
    s->captured = 0;
    s->snapshot_run = service_run(s->service, &ended);
    enum status st = ST_RANGE;
    if (s->snapshot_run && s->snapshot_run->generation == a->generation &&
        s->snapshot_run->self >= 0)
        st = snapshot_create(s->snapshot_run->store, on_captured, s, &s->snapshot);
    set_phase(s, CONTROL_ARMED);
    if (st == ST_OK)
        st = snapshot_begin(s->snapshot, a->step);
    if (st == ST_OK)
        return;
    int past = s->snapshot != NULL;
    drop_snapshot(s);
    set_phase(s, past ? CONTROL_PAST : CONTROL_FAILED);
}

static void write_file(struct server *s)
{
    int n;
    const struct snapshot_chunk *c = snapshot_chunks(s->snapshot, &n);
    struct sim_file *f = sim_alloc(sizeof *f);
    struct disk_order *o = sim_alloc(sizeof *o);
    f->generation = s->snapshot_run->generation;
    f->step = s->part_step;
    f->server = s->snapshot_run->self;
    f->n = n;
    for (int i = 0; i < n; i++) {
        f->chunk[i] = c[i].chunk;
        f->state[i].version = c[i].version;
        memcpy(f->state[i].value, c[i].value->data, (size_t)opt(OPT_elems) * sizeof(float));
        if (c[i].slots)
            memcpy(f->state[i].slots, c[i].slots->data,
                   c[i].slots->bytes < sizeof f->state[i].slots ? c[i].slots->bytes
                                                                : sizeof f->state[i].slots);
        if (c[i].n_samples > SIM_SAMPLES)
            sim_fail("bound", "more batches are in hand than there can be members");
        if (c[i].n_samples > 0) {
            f->n_samples = c[i].n_samples;
            memcpy(f->samples, c[i].samples, c[i].n_samples * sizeof *f->samples);
        }
        oracle_version((struct oracle_place){s->node, f->generation, c[i].chunk}, c[i].version,
                       f->state[i].value, c[i].slots ? f->state[i].slots : NULL, "in a checkpoint");
        if (job_in_lockstep(&sim_job) && c[i].version != f->step)
            sim_fail("I7", "a checkpoint of step %lld has a chunk of step %lld", (long long)f->step,
                     (long long)c[i].version);
    }
    f->bytes = sizeof f->state;
    f->crc32c = digest_crc32c(0, f->state, sizeof f->state) | 1;
    o->what = DISK_ORDER_FILE;
    o->op = (uint32_t)s->part.order;
    o->file = f;
    drop_snapshot(s);
    set_phase(s, CONTROL_WRITING);
    s->writing = 1;
    disk_begin(s->node, o);
}

void follow_disk(struct server *s, struct disk_order *o)
{
    disk_end(s->folder, s->node, o);
    s->writing = 0;
    if (s->part.phase != CONTROL_WRITING && s->part.phase != CONTROL_FAILED)
        return;
    if (o->op != (uint32_t)s->part.order)
        return;
    s->part.bytes = o->file->bytes;
    s->part.crc32c = o->file->crc32c;
    set_phase(s, o->st == ST_OK ? CONTROL_WRITTEN : CONTROL_FAILED);
}

static void apply(struct server *s, const struct net_plan *p)
{
    s->apply = p;
    sim_timer(s->node, sim_between(&sim.node[s->node].random, 50, 3000) * 1000, TIMER_APPLY,
              (int64_t)p->generation);
}

/* The plan is begun, or tried again, as long as it is wanted. */
static void begin(struct server *s)
{
    const struct net_plan *p = s->apply;
    s->apply = NULL;
    const struct sim_manifest *m =
        p->source == PLAN_CHECKPOINT && s->folder ? folder_find(s->folder, p->restore) : NULL;
    struct sim_node *n = &sim.node[s->node];
    int has_older = m && folder_newest(s->folder, m); /* the last one would stop the job for good */
    if (has_older && n->damages) {
        n->damaged = m;
        n->damages = 0;
    }
    enum status st = ST_NOT_FOUND;
    if (n->begin_fails) {
        st = ST_NOMEM;
        n->begin_fails--;
    } else if (has_older && m == n->damaged) {
        s->unreadable = p->generation;
        STORY("%s finds %s damaged", n->name, m->name);
        sim_mark(MARK_unread);
    } else if (m || p->source != PLAN_CHECKPOINT)
        st = generation_begin(s->service, p, (const struct checkpoint_restore *)m);
    if (st != ST_OK && !s->apply) {
        s->apply = p;
        sim_timer(s->node, AGAIN_MS * SIM_MS, TIMER_APPLY, (int64_t)p->generation);
    }
    follow_news(s, 1);
}

static void carry_out(struct server *s, const struct follower_action *a)
{
    struct follower_event e = {.kind = FOLLOWER_LOOKED};
    switch (a->kind) {
    case FOLLOWER_ACT_STOP:
        STORY("%s stops", sim.node[s->node].name);
        sim_mark(MARK_stop);
        generation_stop(s->service);
        break;
    case FOLLOWER_ACT_APPLY:
        apply(s, s->reply->plan);
        break;
    case FOLLOWER_ACT_SETTLE:
        generation_settle(s->service, a->generation);
        break;
    case FOLLOWER_ACT_ORDER:
        order(s, a);
        break;
    case FOLLOWER_ACT_CANCEL:
        if (s->part.phase == CONTROL_ARMED && !s->captured) {
            drop_snapshot(s);
            set_phase(s, CONTROL_IDLE);
        }
        break;
    case FOLLOWER_ACT_LOOK: {
        const struct sim_manifest *m = s->folder ? folder_newest(s->folder, NULL) : NULL;
        e.has_all_steps = m && m->step >= sim_job.train_steps;
        follow_step(s, &e);
        break;
    }
    case FOLLOWER_ACT_REFUSED:
        s->ends = 1;
        STORY("%s is refused: %s", sim.node[s->node].name, s->reply ? s->reply->refused : "");
        server_exit(s, EXIT_PERMANENT);
        break;
    case FOLLOWER_ACT_DRAINED:
        STORY("%s is drained", sim.node[s->node].name);
        s->ends = 1;
        if (s->node == 0)
            server_finish(s);
        else
            server_exit(s, a->arg == 2 ? EXIT_PERMANENT : 0);
        break;
    default:
        STORY("%s: follower action %d", sim.node[s->node].name, (int)a->kind);
        break;
    }
}

static void follow_step(struct server *s, const struct follower_event *e)
{
    struct follower_out out;
    follower_step(&s->follower, e, sim.now, &out);
    if (out.wake_ns != INT64_MAX && out.wake_ns != s->follow_wake)
        sim_timer(s->node, out.wake_ns - sim.now, TIMER_FOLLOW, out.wake_ns);
    s->follow_wake = out.wake_ns;
    s->calls |= out.call;
    for (int i = 0; i < out.n; i++)
        carry_out(s, &out.act[i]);
}

static void step_state(struct server *s)
{
    struct generation_state st;
    generation_state(s->service, &st);
    const struct follower_store store = {.generation = st.generation,
                                         .ps0 = st.ps0,
                                         .stopped = st.stopped,
                                         .ended = st.ended,
                                         .lowest = st.lowest,
                                         .highest = st.highest,
                                         .unreadable = s->unreadable};
    const struct follower_event e = {.kind = FOLLOWER_STORE, .store = &store};
    follow_step(s, &e);
    const struct follower_event snapshot = {.kind = FOLLOWER_SNAPSHOT, .snapshot = &s->part};
    if (s->folder)
        follow_step(s, &snapshot);
}

static void fill_missing(struct server *s, struct net_control *out)
{
    struct roster_entry *members = NULL, *waiting = NULL;
    int n = 0, n_waiting = 0;
    if (membership_roster(s->service, &members, &n, &waiting, &n_waiting) != ST_OK)
        return;
    out->missing = sim_alloc((size_t)(n > 0 ? n : 1) * sizeof *out->missing);
    for (int i = 0; i < n; i++)
        if (members[i].missing_ms >= 0 && !members[i].done)
            out->missing[out->n_missing++] =
                (struct net_missing){members[i].member, members[i].missing_ms, members[i].came};
    free(members);
    free(waiting);
}

static void call(struct server *s)
{
    struct net_control *c = sim_alloc(sizeof *c);
    s->calls = 0;
    follower_request(&s->follower, c);
    c->server = s->joining ? 0 : s->node;
    c->n_servers = s->joining ? 0 : sim_ps_hosts.n;
    c->joining = s->joining;
    snprintf(c->address, sizeof c->address, "s%d:2222", s->node);
    fill_missing(s, c);
    if (s->node != 0) {
        s->call = sim_call(s->node, 0, CALL_CONTROL, c, CALL_MS * SIM_MS);
        return;
    }
    s->own_call = OWN_CALLS | ++s->n_own;
    lead_control(s, c, s->own_call);
}

/* What came of the call, if it is this one that is waited for. */
static void ended(struct server *s, enum status st, const struct net_control_reply *r)
{
    struct follower_event e = {.kind = FOLLOWER_REPLY, .st = st, .reply = r};
    s->call = NULL;
    s->own_call = 0;
    if (st != ST_OK && st != ST_CANCELLED)
        STORY("%s: no answer of ps 0, %s", sim.node[s->node].name, status_text(st));
    if (st == ST_OK && r->later[0])
        STORY("%s: ps 0 says: %s", sim.node[s->node].name, r->later);
    if (st == ST_OK && r->later[0])
        e.st = ST_UNAVAILABLE;
    if (e.st != ST_OK)
        e.kind = FOLLOWER_FAILED;
    s->reply = r;
    follow_step(s, &e);
    s->reply = NULL;
    post_news(s);
}

void follow_reply(struct server *s, struct sim_call *c)
{
    if (s->call == c)
        ended(s, c->st, c->reply);
}

void follow_own_reply(struct server *s, uint64_t call, const struct net_control_reply *r)
{
    if (call != s->own_call)
        return;
    struct sim_event *e =
        sim_post(sim_below(&sim.node[s->node].random, 200) * 1000, EV_TIMER, s->node);
    e->a = TIMER_OWN_REPLY;
    e->b = (int64_t)call;
    s->reply = r; /* one call at a time */
}

static void cancel_call(struct server *s)
{
    if (s->call) {
        sim_call_cancel(s->call);
        ended(s, ST_CANCELLED, NULL);
    } else if (s->own_call) {
        uint64_t own = s->own_call;
        lead_closed(s, own);
        ended(s, ST_CANCELLED, NULL);
    }
}

/* A last checkpoint, as follower_shell_finish wants it. */
void follow_term(struct server *s)
{
    s->ending = 1;
    s->finish_ns = sim.now + LAST_MS * SIM_MS;
    s->wants++;
    follow_news(s, 0);
}

static void look_at_end(struct server *s)
{
    if (!s->ending || s->node == 0)
        return;
    const struct follower *f = &s->follower;
    int heard = s->term && !s->wants && follower_is_heard(f, sim.now);
    if (heard || f->drained || (!s->term && f->missed && sim.now - f->missed >= SIM_S) ||
        sim.now >= s->finish_ns)
        server_exit(s, 0);
    else if (!s->look_posted)
        sim_timer(s->node, LOOK_MS * SIM_MS, TIMER_NEWS, s->look_posted = 1);
}

static void news(struct server *s)
{
    static const struct follower_event want = {.kind = FOLLOWER_WANT},
                                       leave = {.kind = FOLLOWER_LEAVE},
                                       workers = {.kind = FOLLOWER_WORKERS};
    int changed = s->changed, wants = s->wants, leaves = s->leaves;
    s->changed = s->wants = s->leaves = 0;
    if (s->captured && s->snapshot)
        write_file(s);
    s->captured = 0;
    if (changed || wants || leaves)
        cancel_call(s);
    step_state(s);
    if (changed)
        follow_step(s, &workers);
    for (int i = 0; i < wants; i++)
        follow_step(s, &want);
    if (leaves)
        follow_step(s, &leave);
    if (s->calls && !s->ends && !s->call && !s->own_call)
        call(s);
}

void follow_timer(struct server *s, int what, int64_t number)
{
    static const struct follower_event timer = {.kind = FOLLOWER_TIMER};
    if (what == TIMER_NEWS) {
        s->news_posted &= number != 0;
        s->look_posted &= number == 0;
        news(s);
    } else if (what == TIMER_FOLLOW && number == s->follow_wake) {
        follow_step(s, &timer);
        post_news(s);
    } else if (what == TIMER_APPLY && s->apply && (int64_t)s->apply->generation == number) {
        begin(s);
    } else if (what == TIMER_OWN_REPLY && (uint64_t)number == s->own_call && s->reply) {
        ended(s, ST_OK, s->reply);
    }
    look_at_end(s);
}

void follow_start(struct server *s)
{
    struct follower_start start = {.incarnation = sim.node[s->node].incarnation,
                                   .keeps_checkpoints = s->folder != NULL,
                                   .done_ms = sim.node[s->node].life > 1 ? 60000 : 0};
    const struct follower_event e = {.kind = FOLLOWER_START, .start = &start};
    follower_init(&s->follower);
    s->follow_wake = INT64_MAX;
    s->part.phase = CONTROL_IDLE;
    follow_step(s, &e);
    post_news(s);
}

void follow_stop(struct server *s)
{
    drop_snapshot(s);
}
