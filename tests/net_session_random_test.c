/* tests/net_session_random_test.c - the session (net/exchange/session.h) under random events, with
 * a check of its invariants after each event. WEIR_TEST_SEED=N begins with seed N. */
#include "net/exchange/session.h"
#include "tests/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SERVERS = 80, N_EVENTS = 100000 };
#define MS ((int64_t)1000000)

static struct session *make_session(int member, int can_renew)
{
    const struct session_config cfg = {
        .max_servers = MAX_SERVERS, .member = member, .can_renew = can_renew, .wait_line_ms = 5000};
    struct session *s = calloc(1, session_bytes(MAX_SERVERS));
    assert_non_null(s);
    session_init(s, &cfg);
    return s;
}

enum call { CALL_NONE, CALL_JOIN, CALL_STREAM };

struct world {
    struct session *s, *copy;
    uint64_t random;
    int64_t now;
    enum call call[MAX_SERVERS];
    int cancelled[MAX_SERVERS];   /* nonzero: the call of this link is cancelled */
    int64_t ends_ns[MAX_SERVERS]; /* time at which the calm world answers the link's call */
    int n_leaves, n_soon;         /* unanswered leave messages, and requests to leave soon */
    int begun, out, left, failed;
    int64_t wake_ns;
    uint64_t digest; /* hash of all actions */
    int from[MAX_SERVERS];
    char idle[MAX_SERVERS];
};

static uint64_t draw(struct world *w, uint64_t below)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (w->random >> 33) % below;
}

static void world_open(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random = seed;
    w->s = make_session(draw(w, 3) ? 4 : -1, (int)draw(w, 4) > 0);
    w->copy = make_session(0, 0);
    w->wake_ns = INT64_MAX;
}

static void world_close(struct world *w)
{
    free(w->s);
    free(w->copy);
}

/* Renumbers the links according to the new list of servers. */
static void renumber(struct world *w, const struct session_event *e)
{
    struct world was = *w;
    for (int i = 0; i < e->n_servers; i++) {
        int from = e->from[i];
        w->call[i] = from < 0 ? CALL_NONE : was.call[from];
        w->cancelled[i] = from < 0 ? 0 : was.cancelled[from];
        w->ends_ns[i] = from < 0 ? 0 : was.ends_ns[from];
    }
}

/* Ends the call that the event answers, if the event answers a call. */
static void end_call(struct world *w, const struct session_event *e)
{
    int join = e->kind == EVENT_JOIN_ANSWER || e->kind == EVENT_JOIN_FAILED;
    if (e->link < 0 || e->link >= w->s->n_links)
        return;
    if ((join && w->call[e->link] == CALL_JOIN) ||
        (e->kind == EVENT_STREAM_DOWN && w->call[e->link] == CALL_STREAM))
        w->call[e->link] = CALL_NONE;
}

static void begin_call(struct world *w, int link, enum call call)
{
    assert_in_range(link, 0, w->s->n_links - 1);
    assert_int_equal(w->call[link], CALL_NONE); /* a link never has two calls */
    w->call[link] = call;
    w->cancelled[link] = 0;
    w->ends_ns[link] = w->now + (int64_t)draw(w, 10) * MS;
}

static void do_action(struct world *w, const struct session_event *e,
                      const struct session_action *a)
{
    w->digest = (w->digest ^ (uint64_t)(a->kind * 1000 + a->link)) * 1099511628211u;
    switch (a->kind) {
    case ACTION_JOIN:
        begin_call(w, a->link, CALL_JOIN);
        break;
    case ACTION_OPEN:
        assert_int_equal(a->generation, w->s->generation);
        begin_call(w, a->link, CALL_STREAM);
        break;
    case ACTION_CANCEL:
        assert_int_not_equal(w->call[a->link], CALL_NONE);
        assert_int_equal(w->cancelled[a->link]++, 0);
        w->ends_ns[a->link] = w->now;
        break;
    case ACTION_SET_SERVERS:
        renumber(w, e);
        break;
    case ACTION_LEAVE_CALL:
        *(a->soon ? &w->n_soon : &w->n_leaves) += 1;
        break;
    case ACTION_BEGIN:
        w->begun++;
        break;
    case ACTION_OUT:
        w->out++;
        break;
    case ACTION_LEFT:
        assert_int_equal(w->n_leaves, 0);
        w->left++;
        break;
    case ACTION_FAIL:
        w->failed++;
        break;
    case ACTION_REBASED:
    case ACTION_LINE:
        break;
    }
}

/* Passes an event to the session, checks the invariants, and carries out the session's actions. */
static void step(struct world *w, const struct session_event *e)
{
    static struct session_out out, again;
    struct session_event event = *e;
    const size_t bytes = session_bytes(MAX_SERVERS);
    end_call(w, e);
    do {
        uint64_t generation = w->s->generation, heard = w->s->heard;
        memcpy(w->copy, w->s, bytes);
        session_step(w->s, &event, w->now, &out);
        session_step(w->copy, &event, w->now, &again); /* a copied session behaves alike */
        assert_memory_equal(w->copy, w->s, bytes);
        assert_in_range(out.n, 0, SESSION_ACTIONS);
        assert_true(w->s->generation >= generation && w->s->heard >= heard);
        assert_true(w->s->generation <= w->s->heard);
        assert_true(out.more || out.wake_ns > w->now);
        for (int i = 0; i < out.n; i++)
            do_action(w, &event, &out.act[i]);
        event = (struct session_event){.kind = EVENT_TIMER};
    } while (out.more);
    w->wake_ns = out.wake_ns;
}

/* Draws up to `most` servers. Some of them are in the present generation. */
static void draw_servers(struct world *w, struct session_event *e, int most)
{
    int used[MAX_SERVERS] = {1};
    e->n_servers = 1 + (int)draw(w, (uint64_t)most);
    e->from = w->from;
    w->from[0] = 0;
    for (int i = 1; i < e->n_servers; i++) {
        int from = (int)draw(w, MAX_SERVERS);
        w->from[i] = from < w->s->n_links && !used[from] ? from : -1;
        if (w->from[i] >= 0)
            used[from] = 1;
    }
}

static struct session_event draw_event(struct world *w, int wild)
{
    struct session_event e = {.link = (int)draw(w, (uint64_t)w->s->n_links + (wild ? 1 : 0))};
    static const enum session_event_kind often[] = {
        EVENT_START,       EVENT_JOIN_ANSWER, EVENT_JOIN_ANSWER, EVENT_JOIN_ANSWER,
        EVENT_JOIN_ANSWER, EVENT_JOIN_FAILED, EVENT_STREAM_UP,   EVENT_STREAM_UP,
        EVENT_STREAM_UP,   EVENT_STREAM_DOWN, EVENT_BUSY,        EVENT_FETCHED_ALL,
        EVENT_REBASE,      EVENT_TIMER,       EVENT_TIMER};
    int rare = wild && draw(w, 40) == 0;
    e.kind = rare ? (enum session_event_kind)draw(w, EVENT_N_KINDS + 1)
                  : often[draw(w, sizeof often / sizeof often[0])];
    if (wild && draw(w, 15) == 0)
        e = (struct session_event){.kind = draw(w, 2) ? EVENT_LEAVE_SOON : EVENT_LEAVE_ANSWER,
                                   .soon = 1};
    if (e.soon)
        return e;
    e.answer = draw(w, 3) ? JOIN_WELCOME : draw(w, 3) ? JOIN_RETRY : JOIN_INIT;
    e.st = draw(w, 2) ? ST_UNAVAILABLE : ST_DEADLINE;
    e.generation = w->s->heard + draw(w, 4) - (w->s->heard > 2 ? draw(w, 3) : 0);
    e.step = (int64_t)draw(w, 50);
    e.place = (struct net_place){.member = w->s->member < 0 ? 7 : w->s->member, .n_members = 9};
    e.map = e.generation > w->s->generation ? MAP_OTHER : MAP_SAME;
    draw_servers(w, &e, draw(w, 10) ? 4 : MAX_SERVERS);
    e.ps0 = draw(w, 2);
    for (int i = 0; i < MAX_SERVERS; i++)
        w->idle[i] = (char)(draw(w, 4) == 0);
    e.idle = w->idle;
    e.busy = (int)draw(w, 2);
    e.received = (int)draw(w, 2);
    if (!wild && e.answer == JOIN_INIT)
        e.answer = JOIN_WELCOME; /* INIT could mean a loss that cannot be restored */
    if (wild && draw(w, 30) == 0) {
        e.answer = JOIN_REFUSED;
        e.map = (enum session_map)draw(w, 3);
        e.st = (enum status)draw(w, ST_INTERNAL + 1);
        e.soon = (int)draw(w, 2);
        e.done = (int)draw(w, 2);
        e.step = -1;
        e.n_servers = (int)draw(w, MAX_SERVERS + 2);
        e.from = draw(w, 2) ? w->from : NULL;
        for (int i = 0; i < MAX_SERVERS; i++)
            w->from[i] = (int)draw(w, MAX_SERVERS) - 2;
        e.n_servers = e.n_servers > MAX_SERVERS && e.from ? MAX_SERVERS : e.n_servers;
    }
    return e;
}

/* Ends the link's call in the calm world, where all servers are in this generation. */
static void answer(struct world *w, int link, uint64_t generation)
{
    struct session_event e = {.link = link, .kind = EVENT_STREAM_DOWN};
    if (w->call[link] == CALL_JOIN && w->cancelled[link])
        e.kind = EVENT_JOIN_FAILED;
    else if (w->call[link] == CALL_JOIN)
        e = (struct session_event){
            .kind = EVENT_JOIN_ANSWER,
            .link = link,
            .generation = generation,
            .place = {.member = w->s->member < 0 ? 7 : w->s->member, .n_members = 9},
            .map = generation > w->s->generation ? MAP_OTHER : MAP_SAME,
            .n_servers = w->s->n_links,
            .from = w->from};
    else if (!w->cancelled[link])
        e.kind = EVENT_STREAM_UP;
    for (int i = 0; i < MAX_SERVERS; i++)
        w->from[i] = i;
    e.st = ST_UNAVAILABLE;
    w->ends_ns[link] = INT64_MAX;
    step(w, &e);
}

/* Advances the time to the next event. Returns 0 if there is no further event. */
static int next_in_calm(struct world *w, uint64_t generation)
{
    const struct session_event timer = {.kind = EVENT_TIMER};
    int64_t at = w->wake_ns;
    int link = -1;
    for (int i = 0; i < w->s->n_links; i++) {
        const struct session_event idle = {.kind = EVENT_BUSY, .link = i};
        if (w->s->link[i].busy)
            step(w, &idle);
        if (w->call[i] != CALL_NONE && w->ends_ns[i] < at) {
            at = w->ends_ns[i];
            link = i;
        }
    }
    if (at == INT64_MAX)
        return 0;
    w->now = at > w->now ? at : w->now;
    if (link >= 0)
        answer(w, link, generation);
    else
        step(w, &timer);
    return 1;
}

static uint64_t seed_of_run(void)
{
    const char *text = getenv("WEIR_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}

/* Sends any event at any time; most of them are invalid. A session that has failed, left or closed
 * still receives events for a while. */
static uint64_t run_wild(uint64_t seed)
{
    uint64_t digest = 0;
    int begun = 0, out = 0, left = 0, failed = 0;
    struct world w;
    for (int n = 0; n < N_EVENTS; seed++) {
        world_open(&w, seed);
        for (int more = 400; more > 0; more--, n++) {
            struct session_event e = draw_event(&w, 1);
            w.now += (int64_t)draw(&w, draw(&w, 10) ? 20 : 4000) * MS;
            if (e.kind == EVENT_LEAVE_ANSWER && e.link < w.s->n_links && !e.soon)
                w.n_leaves -= w.s->link[e.link].leave == DO_STARTED;
            step(&w, &e);
            if (w.s->state >= SESSION_LEAVING && more > 40)
                more = 40;
        }
        digest = digest * 31 + w.digest;
        begun += w.begun;
        out += w.out;
        left += w.left;
        failed += w.failed;
        world_close(&w);
    }
    assert_true(begun > 0 && out > 0 && left > 0 && failed > 0); /* each state was reached */
    return digest;
}

static void random_events_keep_invariants(void **state)
{
    uint64_t seed = seed_of_run();
    assert_true(run_wild(seed) == run_wild(seed)); /* runs are reproducible */
}

/* The world breaks and changes, and then becomes calm. A session that starts now is in the last
 * generation within a time that does not depend on earlier events. */
static void calm_session_reaches_last_generation(void **state)
{
    enum { CALM_MS = 5000 };
    const struct session_event start = {.kind = EVENT_START};
    uint64_t seed = seed_of_run() << 20;
    struct world w;
    for (int n = 0; n < N_EVENTS; seed++) {
        world_open(&w, seed);
        for (int more = (int)draw(&w, 300); more >= 0; more--, n++) {
            struct session_event e = draw_event(&w, 0);
            w.now += (int64_t)draw(&w, draw(&w, 10) ? 20 : 4000) * MS;
            step(&w, &e);
        }
        assert_int_equal(w.failed, 0);
        for (int i = 0; i < w.s->n_links; i++)
            w.ends_ns[i] = w.now;
        uint64_t generation = w.s->heard + 1;
        int64_t until = w.now + CALM_MS * MS;
        int begun = w.begun;
        step(&w, &start);
        while (!(w.begun > begun && w.s->generation == generation)) {
            int64_t before = w.now;
            if (w.s->state == SESSION_RUNNING || w.s->state == SESSION_REBASED) {
                const struct session_event rebase = {.kind = EVENT_REBASE};
                step(&w, &rebase); /* all servers are in the newest generation */
                step(&w, &start);
            }
            if (!next_in_calm(&w, generation) || before > until)
                fail_msg("seed %llu: state %d, not in a generation", (unsigned long long)seed,
                         (int)w.s->state);
        }
        world_close(&w);
    }
}

/* A leaving session ends when its messages are answered, in any state and with any number of
 * servers. */
static void leave_always_ends(void **state)
{
    struct world w;
    uint64_t seed = seed_of_run() << 21;
    for (int n = 0; n < N_EVENTS / 4; seed++) {
        world_open(&w, seed);
        for (int more = (int)draw(&w, 100); more >= 0; more--, n++) {
            struct session_event e = draw_event(&w, 0);
            w.now += (int64_t)draw(&w, 20) * MS;
            step(&w, &e);
        }
        const struct session_event leave = {.kind = EVENT_LEAVE, .done = (int)draw(&w, 2)};
        step(&w, &leave);
        for (int i = 0; i < w.s->n_links; i++) {
            const struct session_event told = {
                .kind = EVENT_LEAVE_ANSWER, .link = i, .st = draw(&w, 2) ? ST_OK : ST_DEADLINE};
            assert_int_equal(w.left, w.n_leaves == 0);
            if (w.s->link[i].leave == DO_STARTED) {
                w.n_leaves--;
                step(&w, &told);
            }
        }
        assert_int_equal(w.left, 1);
        assert_int_equal(w.s->state, SESSION_LEFT);
        world_close(&w);
    }
}

int main(void)
{
    return RUN_TESTS(random_events_keep_invariants, calm_session_reaches_last_generation,
                     leave_always_ends);
}
