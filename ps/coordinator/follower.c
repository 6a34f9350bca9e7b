/* ps/coordinator/follower.c - makes a step of a server's follower (follower.h): handles the
 * event, then keeps one call to ps 0 under way. */
#include "ps/coordinator/follower.h"
#include <stdbool.h>
#include <string.h>

#define MS ((int64_t)1000000)

enum {
    RETRY_MS = 500,
    FIRST_LINE_MS = 1000, /* a shorter absence of ps 0 is not logged */
    LINE_MS = 10000,      /* interval of the lines about a missing ps 0 */
    /* at the end: a ps 0 that is silent for this time, which is longer than a call, is gone */
    SILENT_MS = 17000,
    /* at the end: replaces SILENT_MS if the job has all its steps */
    ENDED_MS = 1000,
    /* a ps 0 that is missing for this time may have ended without a message */
    GONE_MS = 10000,
};

static void add_action(struct follower_out *out, enum follower_action_kind kind, int arg)
{
    CHECK(out->n < FOLLOWER_MAX_ACTIONS);
    out->act[out->n++] = (struct follower_action){.kind = kind, .arg = arg};
}

static void add_look(const struct follower *f, struct follower_out *out)
{
    add_action(out, FOLLOWER_ACT_LOOK, 0);
    out->act[out->n - 1].generation = f->store.generation;
}

static void set_done_at(struct follower *f)
{
    f->done_at = f->start.done_ms > 0 ? f->now + f->start.done_ms * MS : INT64_MAX;
}

void follower_init(struct follower *f)
{
    memset(f, 0, sizeof *f);
    f->store.lowest = f->store.highest = f->order_step = -1;
    f->done_at = INT64_MAX;
    f->phase = PART_IDLE;
}

/* Passes the last order to the writer as soon as the store is in the order's generation. */
static void take_order(struct follower *f, struct follower_out *out)
{
    if (f->order_step < 0) {
        if (f->phase == PART_ARMED)
            add_action(out, FOLLOWER_ACT_CANCEL, 0);
        return;
    }
    if (f->order == f->taken || f->store.generation != f->order_generation || !f->store.generation)
        return;
    f->taken = f->order;
    f->bytes = f->crc32c = 0;
    if (!f->start.keeps_checkpoints) {
        f->phase = PART_FAILED;
        f->news = 1;
        if (!f->has_logged_no_folder)
            add_action(out, FOLLOWER_ACT_NO_FOLDER, 0);
        f->has_logged_no_folder = 1;
        return;
    }
    f->phase = PART_ARMED;
    add_action(out, FOLLOWER_ACT_ORDER, 0);
    out->act[out->n - 1].order = f->order;
    out->act[out->n - 1].generation = f->order_generation;
    out->act[out->n - 1].step = f->order_step;
}

/* Follows another process as ps 0. The state of the job that this new ps 0 reports is valid from
 * now on, and training stops here until the new ps 0 sends a plan. */
static void follow_leader(struct follower *f, const struct net_control_reply *r,
                          struct follower_out *out)
{
    bool is_first = f->leader == 0;
    f->leader = r->incarnation;
    f->order = f->taken = f->stop = f->settled = f->applying = 0;
    f->order_step = -1;
    if (is_first)
        return;
    add_action(out, FOLLOWER_ACT_NEW_PS0, 0);
    if (f->store.generation && !f->store.ended && !f->store.stopped)
        add_action(out, FOLLOWER_ACT_STOP, 0);
}

/* Obeys a reply's Stop, plan and settled generation. A Stop applies to a store in the reply's
 * generation. A server without a place in that generation receives no plan, but stops: members that
 * still wait here must go to the servers of the plan. */
static void follow_plan(struct follower *f, const struct net_control_reply *r,
                        struct follower_out *out)
{
    bool is_new = r->plan && r->generation > f->store.generation;
    int ends = r->stop != f->stop && f->store.generation == r->generation;
    if (!r->plan && f->store.generation && f->store.generation < r->generation)
        ends = 1;
    f->stop = r->stop;
    if (ends && !f->store.stopped)
        add_action(out, FOLLOWER_ACT_STOP, 0);
    if (is_new && r->generation != f->applying) {
        f->applying = r->generation;
        add_action(out, FOLLOWER_ACT_APPLY, 0);
        out->act[out->n - 1].generation = f->applying;
    }
    if (r->settled && r->settled != f->settled) {
        f->settled = r->settled;
        add_action(out, FOLLOWER_ACT_SETTLE, 0);
        out->act[out->n - 1].generation = r->settled;
    }
}

/* Returns true if the reply is from a ps 0 that was replaced, and is not obeyed. */
static bool is_fenced(struct follower *f, const struct net_control_reply *r,
                      struct follower_out *out)
{
    if (r->epoch >= f->epoch)
        return false;
    add_action(out, FOLLOWER_ACT_OLD_PS0, 0);
    f->call = CALL_RESTING;
    f->rest_until = f->now + RETRY_MS * MS;
    return true;
}

static void on_reply(struct follower *f, const struct net_control_reply *r,
                     struct follower_out *out)
{
    f->call = CALL_IDLE;
    f->line = 0;
    if (r->refused[0]) {
        f->refused = 1;
        add_action(out, FOLLOWER_ACT_REFUSED, 0);
        return;
    }
    if (is_fenced(f, r, out))
        return;
    if (f->leader != r->incarnation)
        follow_leader(f, r, out);
    f->epoch = r->epoch;
    follow_plan(f, r, out);
    f->seen = r->number;
    f->order = r->order;
    f->order_step = r->step;
    f->order_generation = r->generation;
    f->given = r->given;
    f->closing = r->closing;
    f->heard = f->now;
    f->missed = 0;
    set_done_at(f);
    take_order(f, out);
    if (!r->drained)
        return;
    f->drained = 1;
    f->failed = r->failed;
    f->acknowledges = r->closing; /* ps 0 ends, and waits for the call that acknowledges this */
    if (!f->acknowledges)
        add_action(out, FOLLOWER_ACT_DRAINED, 0);
}

static void on_failed(struct follower *f, enum status st, struct follower_out *out)
{
    f->call = CALL_IDLE;
    if (f->acknowledges) {
        f->acknowledges = 0;
        add_action(out, FOLLOWER_ACT_DRAINED, f->failed ? 2 : 1);
        return;
    }
    if (st == ST_CANCELLED)
        return;
    if (st == ST_PROTOCOL) {
        f->refused = 1;
        add_action(out, FOLLOWER_ACT_REFUSED, 1);
        return;
    }
    if (!f->missed)
        f->missed = f->now;
    f->call = CALL_RESTING;
    f->rest_until = f->now + RETRY_MS * MS;
    if (f->now >= f->done_at && f->store.generation == 0) {
        f->done_at = INT64_MAX; /* the folder is checked only one time */
        add_look(f, out);
    }
    bool has_job = f->store.generation || f->start.joins;
    if (has_job && f->now - f->missed >= GONE_MS * MS && f->now >= f->look_at) {
        f->look_at = f->now + GONE_MS * MS;
        add_look(f, out);
    }
    if (f->line == 0)
        f->line = f->now + FIRST_LINE_MS * MS;
    if (f->now < f->line)
        return;
    f->line = f->now + LINE_MS * MS;
    add_action(out, FOLLOWER_ACT_MISSING, 0);
}

/* Ends a server that never received the order to exit, because it hung, could not be reached or
 * had just been started when ps 0 dropped it or ended. The check may last long: its result no
 * longer counts once ps 0 answers, or the store is in another generation. */
static void on_looked(struct follower *f, const struct follower_event *e, struct follower_out *out)
{
    bool has_job = f->store.generation > 0;
    if (!f->missed || e->generation != f->store.generation)
        return;
    bool was_killed = !has_job && f->start.done_ms > 0 && f->done_at == INT64_MAX;
    bool is_done = e->is_over || (was_killed && e->has_all_steps);
    if (!is_done && !(has_job && e->left_out))
        return;
    f->drained = 1;
    if (is_done)
        add_action(out, FOLLOWER_ACT_DONE, 0);
    add_action(out, FOLLOWER_ACT_DRAINED, is_done);
}

/* Records the store's state. A new step alone is not reported at once. */
static void on_store(struct follower *f, const struct follower_store *now, struct follower_out *out)
{
    const struct follower_store *was = &f->store;
    f->news |= was->generation != now->generation || was->stopped != now->stopped ||
               (now->stopped && (was->lowest != now->lowest || was->highest != now->highest)) ||
               (was->lowest < 0 && now->lowest >= 0) || was->unreadable != now->unreadable;
    f->store = *now;
    if (now->generation >= f->applying)
        f->applying = 0;
    take_order(f, out);
}

static void on_snapshot(struct follower *f, const struct net_control *s)
{
    if (s->order != f->taken)
        return;
    f->news |= (int)f->phase != s->phase;
    f->phase = (enum part_phase)s->phase;
    f->bytes = s->bytes;
    f->crc32c = s->crc32c;
}

static void handle_event(struct follower *f, const struct follower_event *e,
                         struct follower_out *out)
{
    switch (e->kind) {
    case FOLLOWER_START:
        f->start = *e->start;
        f->heard = f->now;
        set_done_at(f);
        break;
    case FOLLOWER_TIMER:
        break;
    case FOLLOWER_REPLY:
        on_reply(f, e->reply, out);
        break;
    case FOLLOWER_FAILED:
        on_failed(f, e->st, out);
        break;
    case FOLLOWER_STORE:
        on_store(f, e->store, out);
        break;
    case FOLLOWER_SNAPSHOT:
        on_snapshot(f, e->snapshot);
        break;
    case FOLLOWER_WORKERS:
        f->news = 1;
        break;
    case FOLLOWER_WANT:
        f->wanted++;
        f->news = 1;
        break;
    case FOLLOWER_LEAVE:
        f->news |= !f->leaving;
        f->leaving = 1;
        break;
    case FOLLOWER_LOOKED:
        on_looked(f, e, out);
        break;
    }
}

/* Keeps one call under way, except for a pause after a failed call, and after this server was
 * refused or drained. A change of the state cancels the call, so that the next one reports the
 * change. */
static void keep_calling(struct follower *f, struct follower_out *out)
{
    int ends = f->refused || (f->drained && !f->acknowledges);
    if (ends)
        return;
    if (f->call == CALL_RESTING && f->now >= f->rest_until)
        f->call = CALL_IDLE;
    if (f->call == CALL_IDLE) {
        f->call = CALL_UNDER_WAY;
        f->news = 0;
        f->serial++;
        out->call = 1;
    } else if (f->call == CALL_UNDER_WAY && f->news && !f->acknowledges) {
        f->call = CALL_CANCELLED;
        out->cancel = 1;
    } else if (f->call == CALL_RESTING) {
        out->wake_ns = f->rest_until;
    }
}

void follower_step(struct follower *f, const struct follower_event *e, int64_t now_ns,
                   struct follower_out *out)
{
    out->n = out->call = out->cancel = 0;
    out->wake_ns = INT64_MAX;
    f->now = now_ns;
    handle_event(f, e, out);
    keep_calling(f, out);
}

void follower_request(const struct follower *f, struct net_control *out)
{
    *out = (struct net_control){.incarnation = f->start.incarnation,
                                .generation = f->store.generation,
                                .ps0 = f->store.ps0,
                                .heard_ps0 = f->leader,
                                .heard_epoch = f->epoch,
                                .unreadable = f->store.unreadable,
                                .seen = f->seen,
                                .serial = f->serial,
                                .wanted = f->wanted,
                                .order = f->taken,
                                .phase = (int)f->phase,
                                .bytes = f->bytes,
                                .crc32c = f->crc32c,
                                .leaving = f->leaving,
                                .stop = f->stop,
                                .stopped = f->store.stopped,
                                .lowest = f->store.lowest,
                                .highest = f->store.highest};
    if (out->highest < out->lowest)
        out->highest = out->lowest;
}

bool follower_is_heard(const struct follower *f, int64_t now_ns)
{
    int64_t missed = f->missed ? now_ns - f->missed : 0, heard = now_ns - f->heard;
    return f->drained || f->refused || f->given >= f->wanted ||
           f->store.generation == 0 || /* no checkpoint needs this server's chunks */
           (f->closing && (f->missed || heard >= ENDED_MS * MS)) || heard >= SILENT_MS * MS ||
           (f->store.ended && missed >= ENDED_MS * MS);
}
