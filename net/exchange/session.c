/* net/exchange/session.c - see session.h. session_step has the rules for each event.
 * settle_session has the rules that depend only on the state, not on the last event: which links
 * must be joined, cancelled or sent a leave message, and whether a START or a LEAVE has ended. */
#include "net/exchange/session.h"
#include <string.h>

enum {
    QUICK_MS = 5, /* first pause between joins while servers change their generation */
    QUICK_MAX_MS = 20,
    QUICK_FOR_MS = 3000, /* time after a server's first answer in which pauses stay short */
    BACKOFF_MS = 100,
    FIRST_MAX_BACKOFF_MS = 500, /* longest pause until the first answer: servers are starting */
    FIRST_LINE_MS = 1000,
    REPORT_AGAIN_MS = 1000,
    DOUBT_MS = 300, /* time for which a server is unreachable before the session contacts ps 0 */
    DOUBT_AGAIN_MS = 1000, /* shortest interval between such contacts */
    ACTIONS_OF_SETTLE = 4, /* highest number of settle_session's actions that concern no link */
};

#define MS ((int64_t)1000000)

size_t session_bytes(int max_servers)
{
    return sizeof(struct session) + 2 * (size_t)max_servers * sizeof(struct session_link);
}

void session_init(struct session *s, const struct session_config *cfg)
{
    memset(s, 0, sizeof *s);
    s->cfg = *cfg;
    s->member = cfg->member;
    s->n_links = 1;
    s->link[0] = (struct session_link){.phase = LINK_HELD};
}

/* Returns true if new calls may begin. */
static bool is_active(const struct session *s)
{
    return s->state >= SESSION_ASKING && s->state <= SESSION_ENDING;
}

/* Returns true if the present generation is ending or has ended. */
static bool is_ending(const struct session *s)
{
    return s->state == SESSION_ASKING || s->state == SESSION_ENDING || s->state == SESSION_REBASED;
}

/* Returns true if a link must be joined while it has no call. */
static bool is_wanted(const struct session *s, int i)
{
    if (s->state == SESSION_ASKING)
        return i == 0 || s->link[i].busy;
    return is_active(s);
}

static bool has_call(const struct session_link *l)
{
    return l->phase >= LINK_JOINING;
}

/* Returns true if the link has or opens a stream that is not being cancelled. */
static bool is_up(const struct session_link *l)
{
    return (l->phase == LINK_STREAMING || l->phase == LINK_OPENING) && l->cancel == DO_NOTHING;
}

static struct session_action *add_action(struct session_out *out, enum session_action_kind kind,
                                         int link)
{
    struct session_action *a = &out->act[out->n++];
    memset(a, 0, sizeof *a);
    a->kind = kind;
    a->link = link;
    return a;
}

static void add_line(struct session_out *out, enum session_line line, int link, int64_t seconds)
{
    struct session_action *a = add_action(out, ACTION_LINE, link);
    a->line = line;
    a->seconds = seconds;
}

static void cancel_call(struct session_link *l)
{
    if (has_call(l) && l->cancel == DO_NOTHING)
        l->cancel = DO_DUE;
}

static void fail_session(struct session *s, enum status st, struct session_out *out)
{
    if (s->st != ST_OK || st == ST_OK)
        return;
    s->st = st;
    if (s->state < SESSION_LEAVING)
        s->state = SESSION_FAILED;
    add_action(out, ACTION_FAIL, 0)->st = st;
}

static void join_at_once(const struct session *s, struct session_link *l)
{
    int64_t line_ms = s->cfg.wait_line_ms;
    int64_t first_ms = s->cfg.first_line_ms > 0 ? s->cfg.first_line_ms : FIRST_LINE_MS;
    if (s->generation == 0 && line_ms > first_ms)
        line_ms = first_ms;
    l->backoff_ms = 0;
    l->answers = 0;
    l->retry_ns = s->now_ns;
    l->down_ns = s->now_ns;
    l->line_ns = s->now_ns + line_ms * MS;
}

/* Cancels the calls of a generation that is over. */
static void rebase_links(struct session *s, struct session_out *out)
{
    int asks = s->state == SESSION_ASKING || s->state == SESSION_JOINING;
    s->state = asks ? SESSION_ASKING : SESSION_REBASED;
    for (int i = 0; i < s->n_links; i++) {
        s->link[i].progress = PROGRESS_NONE;
        s->link[i].busy = 0;
        cancel_call(&s->link[i]);
    }
    add_action(out, ACTION_REBASED, 0);
}

/* Sets the time of the next join. `asked`: the server answered with "retry". */
static void plan_retry(const struct session *s, struct session_link *l, bool asked)
{
    if (asked && !l->answers) /* the server may have just started, after a long wait */
        l->answers_ns = s->now_ns;
    l->answers = asked;
    int quick = asked && s->now_ns - l->answers_ns < QUICK_FOR_MS * MS;
    int64_t most = quick                ? QUICK_MAX_MS
                   : s->generation == 0 ? FIRST_MAX_BACKOFF_MS
                                        : SESSION_MAX_BACKOFF_MS;
    l->retry_ns = s->now_ns + (l->backoff_ms < most ? l->backoff_ms : most) * MS;
    l->backoff_ms = l->backoff_ms > 0 ? l->backoff_ms * 2 : QUICK_MS;
    if (l->backoff_ms > most)
        l->backoff_ms = most;
}

static void end_call(struct session *s, int i, bool asked, struct session_out *out)
{
    struct session_link *l = &s->link[i];
    int wanted = is_wanted(s, i), cancelled = l->cancel != DO_NOTHING;
    bool was_stream = l->phase != LINK_JOINING && !cancelled && l->progress != PROGRESS_NONE;
    l->cancel = DO_NOTHING;
    l->phase = wanted ? LINK_DOWN : LINK_HELD;
    /* The session itself has cancelled the call, to join again at once: no stream was lost. */
    if (cancelled)
        join_at_once(s, l);
    if (was_stream) {
        l->down_ns = s->now_ns;
        l->line_ns = s->now_ns + s->cfg.wait_line_ms * MS;
    }
    if (wanted && was_stream && !is_ending(s)) {
        l->lost = 1;
        add_line(out, LINE_LOST, i, 0);
    } else if (wanted && s->now_ns >= l->line_ns) {
        l->line_ns = s->now_ns + s->cfg.wait_line_ms * MS;
        add_line(out, LINE_WAITING, i, (s->now_ns - l->down_ns) / (1000 * MS));
    }
    plan_retry(s, l, asked || cancelled);
}

/* Returns true if the event's list of servers can replace the present one: ps 0 stays, and no two
 * new servers share a link. */
static bool list_fits(struct session *s, const struct session_event *e)
{
    struct session_link *seen = s->link + s->cfg.max_servers;
    bool fits = e->n_servers >= 1 && e->n_servers <= s->cfg.max_servers && e->from && !e->from[0];
    for (int i = 0; i < s->n_links; i++)
        seen[i].busy = false;
    for (int i = 0; fits && i < e->n_servers; i++) {
        int from = e->from[i];
        fits = from >= -1 && from < s->n_links && (from < 0 || !seen[from].busy);
        if (fits && from >= 0)
            seen[from].busy = true;
    }
    return fits;
}

/* Sets the generation's servers. Returns false if the list of servers does not fit. */
static bool set_servers(struct session *s, const struct session_event *e, struct session_out *out)
{
    struct session_link *next = s->link + s->cfg.max_servers;
    if (!list_fits(s, e))
        return false;
    for (int i = 0; i < e->n_servers; i++) {
        int from = e->from[i];
        next[i] = from >= 0 ? s->link[from] : (struct session_link){.phase = LINK_HELD};
        next[i].progress = PROGRESS_NONE;
        next[i].busy = 0;
        next[i].idle = i > 0 && e->idle && e->idle[i] && e->ps0;
        if (i == 0)
            continue;
        cancel_call(&next[i]);
        join_at_once(s, &next[i]);
    }
    memcpy(s->link, next, (size_t)e->n_servers * sizeof *next);
    s->n_links = e->n_servers;
    s->has_first_values = s->generation == 0;
    s->generation = e->generation;
    s->ps0 = e->ps0;
    s->state = SESSION_JOINING;
    add_action(out, ACTION_SET_SERVERS, 0)->generation = e->generation;
    return true;
}

/* Returns true if ps 0 has assigned a valid index: a worker of the first generation keeps its
 * own. A worker that joined later receives one from ps 0, possibly another one after a restart. */
static bool place_fits(const struct session *s, const struct net_place *place)
{
    if (place->n_members == 0)
        return s->member >= 0;
    return s->member < 0 || s->cfg.may_move || place->member == s->member;
}

/* Decides with which requests the link's stream begins. Returns false if the server has lost
 * parameters that cannot be restored. */
static bool find_first(const struct session *s, const struct session_link *l,
                       const struct session_event *e, enum session_first *first)
{
    bool init = e->answer == JOIN_INIT;
    if (l->progress == PROGRESS_FETCHED) {
        *first = FIRST_NOTHING;
        return !init && e->step >= 0;
    }
    *first = !init ? FIRST_PULL : s->has_first_values ? FIRST_INIT : FIRST_RENEW_AND_INIT;
    return *first != FIRST_RENEW_AND_INIT || s->cfg.can_renew;
}

/* Processes the answer of a server that is in the session's generation; it may be the server's
 * first answer or a later one. Returns false if the session failed. */
static bool process_answer(struct session *s, const struct session_event *e,
                           struct session_out *out)
{
    struct session_link *l = &s->link[e->link];
    enum session_first first;
    if (e->link == 0 && !place_fits(s, &e->place)) {
        add_line(out, LINE_NO_INDEX, 0, 0);
        fail_session(s, ST_PROTOCOL, out);
        return false;
    }
    if (!find_first(s, l, e, &first)) {
        add_line(out, LINE_PARAMETERS_LOST, e->link, 0);
        fail_session(s, ST_UNAVAILABLE, out);
        return false;
    }
    if (e->link == 0) {
        s->place = e->place;
        s->member = e->place.n_members > 0 ? e->place.member : s->member;
    }
    s->has_first_values |= first == FIRST_RENEW_AND_INIT;
    l->phase = LINK_OPENING;
    struct session_action *a = add_action(out, ACTION_OPEN, e->link);
    a->generation = s->generation;
    a->rank = s->place.n_members > 0 ? s->place.rank : s->cfg.member;
    a->first = first;
    return true;
}

enum verdict {
    VERDICT_WAIT,    /* the server, or this member, has not entered the generation yet */
    VERDICT_IN_STEP, /* the server is in this session's generation */
    VERDICT_NEXT,    /* the server is in the next generation, which START waits for */
    VERDICT_AHEAD,   /* the server is in a newer generation: the session's generation is over */
};

/* Compares the server's generation with the session's; no other function does. */
static enum verdict judge_generation(struct session *s, const struct session_event *e)
{
    int older = e->generation<s->generation, newer = e->generation> s->generation;
    if (e->generation > s->heard) {
        s->heard = e->generation;
        s->heard_ps0 = e->ps0;
    }
    if (!is_active(s) || older)
        return VERDICT_WAIT;
    if (!newer && s->generation > 0 && (!is_ending(s) || s->link[e->link].busy))
        return VERDICT_IN_STEP;
    if (!newer)
        return VERDICT_WAIT;
    if (e->link == 0 && (s->state == SESSION_ASKING || s->state == SESSION_JOINING))
        return VERDICT_NEXT;
    return VERDICT_AHEAD;
}

/* Ends the present generation, because the server's answer named a newer one. */
static void turn_back(struct session *s, int i, struct session_out *out)
{
    s->link[i].phase = LINK_DOWN; /* the call that brought the answer has ended */
    rebase_links(s, out);
}

static void take_welcome(struct session *s, const struct session_event *e, struct session_out *out)
{
    enum verdict verdict = judge_generation(s, e);
    bool fits = 1;
    if (verdict == VERDICT_NEXT)
        fits = e->map != MAP_BAD && set_servers(s, e, out);
    else if (verdict == VERDICT_IN_STEP && e->link == 0)
        fits = e->map == MAP_SAME;
    if (!fits) {
        add_line(out, LINE_BAD_MAP, 0, 0);
        fail_session(s, ST_PROTOCOL, out);
    } else if (verdict == VERDICT_NEXT || verdict == VERDICT_IN_STEP) {
        if (process_answer(s, e, out))
            return;
    } else if (verdict == VERDICT_AHEAD) {
        turn_back(s, e->link, out);
    }
    end_call(s, e->link, 1, out);
}

static void on_join_answer(struct session *s, const struct session_event *e,
                           struct session_out *out)
{
    struct session_link *l = &s->link[e->link];
    if (l->phase != LINK_JOINING)
        return;
    if (l->cancel != DO_NOTHING) {
        end_call(s, e->link, 1, out);
    } else if (e->answer == JOIN_REFUSED) {
        add_line(out, LINE_REFUSED, e->link, 0);
        fail_session(s, ST_REFUSED, out);
        end_call(s, e->link, 0, out);
    } else if (e->answer == JOIN_RETRY) { /* the server may be in a newer generation */
        l->waits = 1;
        bool is_member = s->generation > 0; /* false: the session has no generation yet */
        if (is_member && judge_generation(s, e) == VERDICT_AHEAD)
            turn_back(s, e->link, out);
        end_call(s, e->link, 1, out);
    } else {
        take_welcome(s, e, out);
    }
}

static void on_join_failed(struct session *s, const struct session_event *e,
                           struct session_out *out)
{
    if (s->link[e->link].phase != LINK_JOINING)
        return;
    s->link[e->link].waits = 0;
    if (e->st == ST_REFUSED || e->st == ST_PROTOCOL || e->st == ST_NOMEM)
        fail_session(s, e->st, out);
    end_call(s, e->link, 0, out);
}

static void on_stream_up(struct session *s, const struct session_event *e, struct session_out *out)
{
    struct session_link *l = &s->link[e->link];
    if (l->phase != LINK_OPENING)
        return;
    l->phase = LINK_STREAMING;
    l->waits = 0;
    if (l->cancel != DO_NOTHING)
        return;
    if (l->progress == PROGRESS_NONE)
        l->progress = PROGRESS_JOINED;
    if (l->lost)
        add_line(out, LINE_BACK, e->link, 0);
    l->lost = 0;
}

static void on_stream_down(struct session *s, const struct session_event *e,
                           struct session_out *out)
{
    struct session_link *l = &s->link[e->link];
    if (l->phase != LINK_OPENING && l->phase != LINK_STREAMING)
        return;
    if (e->received)
        l->backoff_ms = BACKOFF_MS;
    end_call(s, e->link, 0, out);
}

static void on_start(struct session *s)
{
    if (s->state == SESSION_RUNNING)
        s->state = SESSION_JOINING;
    if (s->state != SESSION_NEW && s->state != SESSION_ENDING && s->state != SESSION_REBASED)
        return;
    s->state = SESSION_ASKING;
    for (int i = 0; i < s->n_links; i++)
        if (i == 0 || s->link[i].phase != LINK_HELD)
            join_at_once(s, &s->link[i]);
}

static void on_leave(struct session *s, const struct session_event *e)
{
    if (s->state == SESSION_LEAVING || s->state == SESSION_CLOSED)
        return;
    s->state = SESSION_LEAVING;
    s->done = e->done;
    s->leave_st = ST_OK;
    for (int i = 0; i < s->n_links; i++) {
        bool is_member = s->link[i].progress != PROGRESS_NONE || s->leave != LEAVE_STAYS;
        bool informs_all = (e->done || e->failed) && s->generation > 0;
        s->link[i].leave = is_member || informs_all ? DO_DUE : DO_NOTHING;
    }
}

static void on_leave_answer(struct session *s, const struct session_event *e)
{
    struct session_link *l = &s->link[e->link];
    if (e->soon && s->leave == LEAVE_REPORTING) {
        s->leave = e->st == ST_OK ? LEAVE_REPORTED : LEAVE_WANTED;
        s->report_ns = s->now_ns + REPORT_AGAIN_MS * MS;
    } else if (!e->soon && l->leave == DO_STARTED) {
        l->leave = DO_NOTHING;
        if (e->st != ST_OK)
            s->leave_st = e->st;
    }
}

static void handle_event(struct session *s, const struct session_event *e, struct session_out *out)
{
    switch (e->kind) {
    case EVENT_START:
        on_start(s);
        break;
    case EVENT_JOIN_ANSWER:
        on_join_answer(s, e, out);
        break;
    case EVENT_JOIN_FAILED:
        on_join_failed(s, e, out);
        break;
    case EVENT_STREAM_UP:
        on_stream_up(s, e, out);
        break;
    case EVENT_STREAM_DOWN:
        on_stream_down(s, e, out);
        break;
    case EVENT_BUSY:
        s->link[e->link].busy = e->busy;
        break;
    case EVENT_FETCHED_ALL:
        if (s->link[e->link].progress == PROGRESS_JOINED)
            s->link[e->link].progress = PROGRESS_FETCHED;
        break;
    case EVENT_REBASE:
        if (s->state == SESSION_RUNNING || s->state == SESSION_JOINING)
            s->state = s->state == SESSION_RUNNING ? SESSION_ENDING : SESSION_ASKING;
        break;
    case EVENT_LEAVE_SOON:
        s->leave = s->leave == LEAVE_STAYS ? LEAVE_WANTED : s->leave;
        s->report_ns = s->now_ns;
        break;
    case EVENT_LEAVE:
        on_leave(s, e);
        break;
    case EVENT_LEAVE_ANSWER:
        on_leave_answer(s, e);
        break;
    case EVENT_FAIL:
        fail_session(s, e->st, out);
        break;
    case EVENT_CLOSE:
        s->state = SESSION_CLOSED;
        for (int i = 0; i < s->n_links; i++)
            cancel_call(&s->link[i]);
        break;
    case EVENT_TIMER:
    case EVENT_N_KINDS:
        break;
    }
}

static bool all_joined(const struct session *s)
{
    for (int i = 0; i < s->n_links; i++)
        if (s->link[i].progress == PROGRESS_NONE && !s->link[i].idle)
            return false;
    return true;
}

/* Ends a START, or contacts ps 0. A leaving member stays until the other members have made the
 * step, which ps 0 reports; if that report is lost, the member leaves. */
static void settle_start(struct session *s, struct session_out *out)
{
    struct session_link *first = &s->link[0];
    if (s->leave == LEAVE_REPORTED && is_active(s) && s->state != SESSION_ASKING && !is_up(first))
        rebase_links(s, out);
    bool is_outside = s->leave == LEAVE_WANTED && s->generation == 0;
    if ((s->leave == LEAVE_REPORTED || is_outside) && s->state == SESSION_ASKING) {
        s->state = SESSION_REBASED;
        add_action(out, ACTION_OUT, 0);
    }
    if (s->state == SESSION_ASKING && first->phase == LINK_STREAMING && !first->busy)
        cancel_call(first); /* the link joins again at once */
    if (s->state == SESSION_JOINING && all_joined(s)) {
        s->state = SESSION_RUNNING;
        add_action(out, ACTION_BEGIN, 0);
    }
}

/* Contacts ps 0 if another server has been unreachable for a while or makes this member wait, and
 * no active call will bring an answer from ps 0. */
static void settle_doubt(struct session *s, struct session_out *out)
{
    struct session_link *first = &s->link[0];
    if (!is_active(s) || s->state == SESSION_ASKING || first->busy ||
        first->phase != LINK_STREAMING || first->cancel != DO_NOTHING)
        return;
    for (int i = 1; i < s->n_links; i++) {
        int64_t due_ns = s->link[i].down_ns + DOUBT_MS * MS;
        if (is_up(&s->link[i]) || s->link[i].idle)
            continue;
        due_ns = due_ns > s->doubt_ns ? due_ns : s->doubt_ns;
        if (due_ns <= s->now_ns) {
            s->doubt_ns = s->now_ns + DOUBT_AGAIN_MS * MS;
            cancel_call(first);
            return;
        }
        /* While the session joins, answers will arrive in any case. */
        if (s->state != SESSION_JOINING && due_ns < out->wake_ns)
            out->wake_ns = due_ns;
    }
}

/* Returns true if the leave request can reach ps 0: over a stream, or because ps 0 answers joins
 * with "retry". */
static bool can_report_leave(const struct session *s)
{
    const struct session_link *first = &s->link[0];
    return s->leave == LEAVE_WANTED && is_active(s) &&
           ((first->phase == LINK_STREAMING && first->cancel == DO_NOTHING) ||
            ((s->state == SESSION_ASKING || first->waits) && s->generation > 0));
}

static void settle_leave(struct session *s, struct session_out *out)
{
    if (can_report_leave(s) && s->now_ns >= s->report_ns) {
        s->leave = LEAVE_REPORTING;
        add_action(out, ACTION_LEAVE_CALL, 0)->soon = 1;
    }
    int waits = 0;
    for (int i = 0; i < s->n_links; i++)
        waits |= s->link[i].leave != DO_NOTHING;
    if (s->state == SESSION_LEAVING && !waits) {
        s->state = SESSION_LEFT;
        add_action(out, ACTION_LEFT, 0)->st = s->leave_st;
    }
}

/* Adds the action that the link needs now, if any. */
static void settle_link(struct session *s, int i, struct session_out *out)
{
    struct session_link *l = &s->link[i];
    if (l->phase == LINK_DOWN && !is_wanted(s, i))
        l->phase = LINK_HELD;
    if (l->phase == LINK_HELD && is_wanted(s, i)) {
        join_at_once(s, l);
        l->phase = LINK_DOWN;
    }
    if (l->cancel == DO_DUE) {
        l->cancel = DO_STARTED;
        add_action(out, ACTION_CANCEL, i);
    } else if (l->leave == DO_DUE && s->state == SESSION_LEAVING) {
        l->leave = DO_STARTED;
        add_action(out, ACTION_LEAVE_CALL, i)->done = s->done;
    } else if (l->phase == LINK_DOWN && l->retry_ns <= s->now_ns) {
        l->phase = LINK_JOINING;
        struct session_action *a = add_action(out, ACTION_JOIN, i);
        a->generation = s->heard;
        a->ps0 = s->heard_ps0;
        a->member = s->member;
    }
}

static void settle_session(struct session *s, struct session_out *out)
{
    settle_start(s, out);
    settle_leave(s, out);
    settle_doubt(s, out);
    if (can_report_leave(s) && s->report_ns < out->wake_ns)
        out->wake_ns = s->report_ns;
    for (int i = 0; i < s->n_links; i++) {
        struct session_link *l = &s->link[i];
        out->more = out->n >= SESSION_ACTIONS - ACTIONS_OF_SETTLE;
        if (out->more)
            return;
        settle_link(s, i, out);
        out->more |= l->cancel == DO_DUE || l->leave == DO_DUE;
        if (l->phase == LINK_DOWN && l->retry_ns < out->wake_ns)
            out->wake_ns = l->retry_ns;
    }
}

void session_step(struct session *s, const struct session_event *e, int64_t now_ns,
                  struct session_out *out)
{
    out->n = out->more = 0;
    out->wake_ns = INT64_MAX;
    if (now_ns > s->now_ns)
        s->now_ns = now_ns;
    if (e->link >= 0 && e->link < s->n_links)
        handle_event(s, e, out);
    settle_session(s, out);
}
