/* tests/net_session_test.c - the session (net/exchange/session.h) without gRPC, threads or a real
 * clock: tables of events, each with the actions that it causes. */
#include "net/exchange/session.h"
#include "tests/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SERVERS = 80, TEXT_BYTES = 8192 };
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

static void add_words(char *text, const struct session_action *a)
{
    static const char *const firsts[] = {"again", "pull", "init", "renew"};
    static const char *const lines[] = {"lost",     "waiting", "back",   "refused",
                                        "no-index", "forgot",  "bad-map"};
    char word[64];
    switch (a->kind) {
    case ACTION_JOIN:
        snprintf(word, sizeof word, "join%d", a->link);
        break;
    case ACTION_OPEN:
        snprintf(word, sizeof word, "open%d-%s", a->link, firsts[a->first]);
        break;
    case ACTION_CANCEL:
        snprintf(word, sizeof word, "cancel%d", a->link);
        break;
    case ACTION_SET_SERVERS:
        snprintf(word, sizeof word, "servers@%d", (int)a->generation);
        break;
    case ACTION_BEGIN:
        snprintf(word, sizeof word, "begin");
        break;
    case ACTION_OUT:
        snprintf(word, sizeof word, "out");
        break;
    case ACTION_REBASED:
        snprintf(word, sizeof word, "rebased");
        break;
    case ACTION_FAIL:
        snprintf(word, sizeof word, "fail-%s", status_name(a->st));
        break;
    case ACTION_LEAVE_CALL:
        snprintf(word, sizeof word, "%s%d", a->soon ? "soon" : "goodbye", a->link);
        break;
    case ACTION_LEFT:
        snprintf(word, sizeof word, "left-%s", status_name(a->st));
        break;
    case ACTION_LINE:
        snprintf(word, sizeof word, "say%d-%s", a->link, lines[a->line]);
        break;
    }
    size_t at = strlen(text);
    snprintf(text + at, TEXT_BYTES - at, "%s%s", at ? " " : "", word);
}

struct row {
    int at_ms;
    struct session_event e;
    const char *wants; /* expected actions, in order */
};

static const int two[] = {0, -1}, same[] = {0, 1}, other[] = {0, -1};

#define PLACE                                                                                      \
    {                                                                                              \
        .member = 4, .rank = 1, .n_members = 2                                                     \
    }
#define START                                                                                      \
    {                                                                                              \
        .kind = EVENT_START                                                                        \
    }
#define TIMER                                                                                      \
    {                                                                                              \
        .kind = EVENT_TIMER                                                                        \
    }
#define FIRST(gen, list)                                                                           \
    {                                                                                              \
        .kind = EVENT_JOIN_ANSWER, .answer = JOIN_WELCOME, .generation = gen, .map = MAP_OTHER,    \
        .n_servers = 2, .from = list, .place = PLACE                                               \
    }
#define SAME(gen)                                                                                  \
    {                                                                                              \
        .kind = EVENT_JOIN_ANSWER, .answer = JOIN_WELCOME, .generation = gen, .map = MAP_SAME,     \
        .place = PLACE                                                                             \
    }
#define WELCOME(k, gen)                                                                            \
    {                                                                                              \
        .kind = EVENT_JOIN_ANSWER, .link = k, .answer = JOIN_WELCOME, .generation = gen            \
    }
#define INIT(k, gen)                                                                               \
    {                                                                                              \
        .kind = EVENT_JOIN_ANSWER, .link = k, .answer = JOIN_INIT, .generation = gen, .step = -1   \
    }
#define RETRY(k)                                                                                   \
    {                                                                                              \
        .kind = EVENT_JOIN_ANSWER, .link = k, .answer = JOIN_RETRY                                 \
    }
#define RETRY_IN(k, gen)                                                                           \
    {                                                                                              \
        .kind = EVENT_JOIN_ANSWER, .link = k, .answer = JOIN_RETRY, .generation = gen              \
    }
#define FAILED(k, why)                                                                             \
    {                                                                                              \
        .kind = EVENT_JOIN_FAILED, .link = k, .st = why                                            \
    }
#define UP(k)                                                                                      \
    {                                                                                              \
        .kind = EVENT_STREAM_UP, .link = k                                                         \
    }
#define DOWN(k)                                                                                    \
    {                                                                                              \
        .kind = EVENT_STREAM_DOWN, .link = k, .received = 1                                        \
    }
#define BUSY(k, n)                                                                                 \
    {                                                                                              \
        .kind = EVENT_BUSY, .link = k, .busy = n                                                   \
    }
#define FETCHED(k)                                                                                 \
    {                                                                                              \
        .kind = EVENT_FETCHED_ALL, .link = k                                                       \
    }
#define REBASE                                                                                     \
    {                                                                                              \
        .kind = EVENT_REBASE                                                                       \
    }
#define SOON                                                                                       \
    {                                                                                              \
        .kind = EVENT_LEAVE_SOON                                                                   \
    }
#define LEAVE(d)                                                                                   \
    {                                                                                              \
        .kind = EVENT_LEAVE, .done = d                                                             \
    }
#define LEAVE_FAILED                                                                               \
    {                                                                                              \
        .kind = EVENT_LEAVE, .failed = 1                                                           \
    }
#define TOLD(k, is_soon, how)                                                                      \
    {                                                                                              \
        .kind = EVENT_LEAVE_ANSWER, .link = k, .soon = is_soon, .st = how                          \
    }

/* A start in generation 1 with two servers, until the session has fetched all values. */
#define BEGUN                                                                                      \
    {0, START, "join0"}, {1, FIRST(1, two), "servers@1 open0-pull join1"}, {2, UP(0), ""},         \
        {3, WELCOME(1, 1), "open1-pull"}, {4, UP(1), "begin"}, {5, FETCHED(0), ""},                \
    {                                                                                              \
        6, FETCHED(1), ""                                                                          \
    }

static void play(const struct row *rows, size_t n, int can_renew)
{
    struct session *s = make_session(4, can_renew);
    struct session_out out;
    for (size_t i = 0; i < n; i++) {
        char text[TEXT_BYTES] = "";
        session_step(s, &rows[i].e, rows[i].at_ms * MS, &out);
        for (int k = 0; k < out.n; k++)
            add_words(text, &out.act[k]);
        if (strcmp(text, rows[i].wants) != 0)
            fail_msg("row %zu, at %d ms: \"%s\", not \"%s\"", i, rows[i].at_ms, text,
                     rows[i].wants);
        assert_true(out.wake_ns > rows[i].at_ms * MS);
    }
    free(s);
}
#define PLAY(...)                                                                                  \
    do {                                                                                           \
        const struct row rows[] = {__VA_ARGS__};                                                   \
        play(rows, sizeof rows / sizeof rows[0], 1);                                               \
    } while (0)

static void broken_stream_is_joined_again(void **state)
{
    PLAY(BEGUN, {10, DOWN(1), "say1-lost"}, {109, TIMER, ""}, {110, TIMER, "join1"},
         {120, FAILED(1, ST_UNAVAILABLE), ""}, {219, TIMER, ""}, {220, BUSY(0, 1), ""},
         {320, TIMER, "join1"}, {321, WELCOME(1, 1), "open1-again"}, {322, UP(1), "say1-back"});
}

/* The generation ends chunk by chunk. The session joins ps 0 when no request is pending at ps 0,
 * and opens each stream again. */
static void planned_change_ends_chunk_by_chunk(void **state)
{
    PLAY(BEGUN, {10, BUSY(0, 1), ""}, {10, BUSY(1, 1), ""}, {11, REBASE, ""}, {12, START, ""},
         {13, BUSY(1, 0), ""}, {14, BUSY(0, 0), "cancel0"}, {15, DOWN(0), "join0"},
         {16, RETRY(0), ""}, {21, TIMER, "join0"},
         {22, FIRST(2, other), "servers@2 open0-pull join1"}, {23, UP(0), ""},
         {24, WELCOME(1, 2), "open1-pull"}, {25, UP(1), "begin"});
    PLAY(BEGUN, {11, REBASE, ""}, {12, START, "cancel0"}, {15, DOWN(0), "join0"},
         {22, FIRST(2, same), "servers@2 open0-pull cancel1"}, {23, UP(0), ""},
         {24, DOWN(1), "join1"}, {25, WELCOME(1, 2), "open1-pull"}, {26, UP(1), "begin"});
}

/* A chunk's pending request is sent again, although the generation ends. */
static void stream_broken_at_the_end_is_opened_again(void **state)
{
    PLAY(BEGUN, {10, BUSY(1, 1), ""}, {11, REBASE, ""}, {12, START, "cancel0"},
         {13, DOWN(0), "join0"}, {14, DOWN(1), ""}, {114, TIMER, "join1"},
         {115, WELCOME(1, 1), "open1-again"}, {116, UP(1), ""}, {117, BUSY(1, 0), ""},
         {118, DOWN(1), ""});
}

static void newer_generation_ends_the_present_one(void **state)
{
    PLAY(BEGUN, {10, DOWN(1), "say1-lost"}, {110, TIMER, "join1"},
         {111, WELCOME(1, 3), "rebased cancel0"}, {112, DOWN(0), ""}, {120, START, "join0"},
         {121, SAME(1), "join0"}, /* ps 0 is still in the old generation */
         {122, RETRY(0), ""}, {127, TIMER, "join0"},
         {128, FIRST(3, same), "servers@3 open0-pull join1"});
}

/* A newer generation appears while the session joins servers: the session joins ps 0 again. */
static void newer_generation_while_joining_restarts_join(void **state)
{
    PLAY({0, START, "join0"}, {1, FIRST(1, two), "servers@1 open0-pull join1"}, {2, UP(0), ""},
         {3, WELCOME(1, 2), "rebased cancel0"}, {4, DOWN(0), "join0"},
         {5, FIRST(2, same), "servers@2 open0-pull join1"});
}

/* An answer that was in flight when a newer generation began is ignored. */
static void older_answers_are_ignored(void **state)
{
    PLAY(BEGUN, {10, REBASE, ""}, {11, START, "cancel0"}, {12, DOWN(0), "join0"},
         {13, FIRST(5, same), "servers@5 open0-pull cancel1"}, {14, UP(0), ""},
         {15, DOWN(1), "join1"}, {16, WELCOME(1, 4), ""}, {21, TIMER, "join1"},
         {22, WELCOME(1, 1), ""}, {32, TIMER, "join1"}, {33, WELCOME(1, 5), "open1-pull"},
         {34, UP(1), "begin"}, {35, DOWN(0), "say0-lost"}, {135, TIMER, "join0"},
         {136, FIRST(4, two), ""});
}

/* ps 1 is down, or makes this worker wait. The session ends its stream to ps 0, so that the next
 * answer of ps 0 to a join shows the present state. If a request is pending at ps 0, the session
 * waits for its answer first. */
static void ps0_is_contacted_about_lost_server(void **state)
{
    PLAY(BEGUN, {10, DOWN(1), "say1-lost"}, {110, TIMER, "join1"}, {309, TIMER, ""},
         {310, TIMER, "cancel0"}, {311, DOWN(0), "join0"}, {312, SAME(1), "open0-again"},
         {313, UP(0), ""}, {320, FAILED(1, ST_UNAVAILABLE), ""}, {520, TIMER, "join1"},
         {521, FAILED(1, ST_UNAVAILABLE), ""}, {1309, TIMER, "join1"}, {1310, TIMER, "cancel0"});
    PLAY(BEGUN, {10, DOWN(1), "say1-lost"}, {110, TIMER, "join1"}, {111, RETRY(1), ""},
         {131, TIMER, "join1"}, {132, RETRY_IN(1, 1), ""}, {310, TIMER, "cancel0 join1"});
    PLAY(BEGUN, {9, BUSY(0, 1), ""}, {10, DOWN(1), "say1-lost"}, {110, TIMER, "join1"},
         {6000, FAILED(1, ST_UNAVAILABLE), "say1-waiting"}, {6001, BUSY(0, 0), "cancel0"});
    /* ps 1 ends while a thread waits for chunks of ps 1, so this thread cannot send START. */
    PLAY(BEGUN, {10, BUSY(0, 1), ""}, {10, BUSY(1, 1), ""}, {11, REBASE, ""}, {12, BUSY(0, 0), ""},
         {13, DOWN(1), ""}, {113, TIMER, "join1"}, {114, FAILED(1, ST_UNAVAILABLE), ""},
         {313, TIMER, "cancel0"}, {314, DOWN(0), "join0 join1"},
         {316, FIRST(2, two), "rebased cancel1"}, {317, FAILED(1, ST_UNAVAILABLE), ""},
         {318, START, "join0"});
    /* The other servers wait for ps 0, whose message to them may be late. */
    PLAY(BEGUN, {10, DOWN(1), "say1-lost"}, {110, TIMER, "join1"}, {310, TIMER, "cancel0"},
         {311, DOWN(0), "join0"}, {312, RETRY(0), ""}, {313, WELCOME(1, 1), "open1-again"},
         {314, UP(1), "say1-back"}, {317, TIMER, "join0"}, {318, FIRST(2, same), "rebased cancel1"},
         {319, START, "join0"}, {320, DOWN(1), ""},
         {321, FIRST(2, same), "servers@2 open0-pull join1"});
}

/* If ps 0 decides when the job is over, the session joins a server without chunks, but does not
 * wait for it. */
static void server_without_chunks_is_not_awaited(void **state)
{
    static const char idle[] = {0, 1};
    struct session_event decided = FIRST(1, two), alone = FIRST(1, two);
    decided.idle = alone.idle = idle;
    decided.ps0 = 77;
    PLAY({0, START, "join0"}, {1, decided, "servers@1 open0-pull join1"}, {2, UP(0), "begin"},
         {3, FAILED(1, ST_UNAVAILABLE), "join1"}, {400, TIMER, ""},
         {401, WELCOME(1, 1), "open1-pull"}, {402, UP(1), ""}, {403, DOWN(1), "say1-lost"},
         {503, TIMER, "join1"}, {2000, TIMER, ""});
    PLAY({0, START, "join0"}, {1, alone, "servers@1 open0-pull join1"}, {2, UP(0), ""},
         {3, WELCOME(1, 1), "open1-pull"}, {4, UP(1), "begin"});
}

/* A server in a newer generation may make this worker wait until ps 0 has admitted the worker. */
static void retry_may_report_newer_generation(void **state)
{
    PLAY(BEGUN, {10, DOWN(1), "say1-lost"}, {110, TIMER, "join1"},
         {111, RETRY_IN(1, 3), "rebased cancel0"}, {112, DOWN(0), ""}, {120, START, "join0"},
         {121, RETRY(0), "join0"}, {122, FIRST(3, same), "servers@3 open0-pull join1"});
    /* ps 0 may also answer RETRY with a newer generation. It does not admit the member by that
     * answer. */
    PLAY(BEGUN, {10, DOWN(0), "say0-lost"}, {110, TIMER, "join0"},
         {111, RETRY_IN(0, 3), "rebased cancel1"}, {112, DOWN(1), ""}, {120, START, "join0"},
         {121, RETRY_IN(0, 3), "join0"}, {122, FIRST(3, same), "servers@3 open0-pull join1"});
    /* During its start the session joins ps 0 again, and joins other servers only after ps 0 has
     * answered. */
    PLAY({0, START, "join0"}, {1, FIRST(1, two), "servers@1 open0-pull join1"}, {2, UP(0), ""},
         {3, RETRY_IN(1, 2), "rebased cancel0"}, {4, DOWN(0), "join0"}, {5, SAME(1), ""},
         {10, TIMER, "join0"}, {11, RETRY(0), ""}, {21, TIMER, "join0"},
         {22, FIRST(2, same), "servers@2 open0-pull join1"});
    /* ps 0 answers with a generation that has ended according to another server. The session enters
     * this generation, and leaves it again. */
    PLAY(BEGUN, {10, DOWN(1), "say1-lost"}, {110, TIMER, "join1"},
         {111, RETRY_IN(1, 3), "rebased cancel0"}, {112, DOWN(0), ""}, {120, START, "join0"},
         {121, FIRST(2, same), "servers@2 open0-pull join1"}, {122, UP(0), ""},
         {123, RETRY_IN(1, 3), "rebased cancel0"}, {124, DOWN(0), "join0"},
         {125, FIRST(3, same), "servers@3 open0-pull join1"});
}

/* A new worker reports generation 0 until ps 0 has admitted it. Otherwise ps 0 could mistake this
 * worker for an earlier process. */
static void join_reports_newest_generation(void **state)
{
    struct session *s = make_session(4, 0);
    static struct session_out out;
    const struct session_event start = START, wait = RETRY_IN(0, 3);
    session_step(s, &start, 0, &out);
    session_step(s, &wait, MS, &out);
    assert_int_equal(out.act[0].kind, ACTION_JOIN);
    assert_int_equal(out.act[0].generation, 0);
    struct session_event first = FIRST(3, two), news = RETRY_IN(1, 5);
    first.ps0 = 77;
    session_step(s, &first, 2 * MS, &out);
    assert_true(out.act[2].kind == ACTION_JOIN && out.act[2].generation == 3); /* join at ps 1 */
    assert_int_equal(out.act[2].ps0, 77); /* by now another ps 0 may have the generation's number */
    assert_int_equal(s->ps0, 77);
    news.ps0 = 78;
    session_step(s, &news, 3 * MS, &out);
    const struct session_event end = DOWN(0);
    session_step(s, &end, 4 * MS, &out);
    assert_true(out.act[0].kind == ACTION_JOIN && out.act[0].generation == 5); /* join at ps 0 */
    assert_int_equal(out.act[0].ps0, 78);
    assert_int_equal(s->ps0, 77); /* unchanged as long as the session is in its generation */
    free(s);
}

static void init_sends_first_values(void **state)
{
    PLAY({0, START, "join0"}, {1, RETRY(0), "join0"}, {2, RETRY(0), ""}, {7, TIMER, "join0"},
         {8, FIRST(1, two), "servers@1 open0-pull join1"}, {9, INIT(1, 1), "open1-init"});
    PLAY(BEGUN, {10, DOWN(1), "say1-lost"}, {110, TIMER, "join1"},
         {111, INIT(1, 1), "say1-forgot fail-ST_UNAVAILABLE"});
}

static void final_errors_fail_the_session(void **state)
{
    const struct session_event refused = {.kind = EVENT_JOIN_ANSWER, .answer = JOIN_REFUSED};
    const struct session_event bad = {.kind = EVENT_JOIN_ANSWER, .generation = 1, .map = MAP_BAD};
    PLAY({0, START, "join0"}, {1, refused, "say0-refused fail-ST_REFUSED"}, {2, TIMER, ""},
         {3, START, ""}, {4, LEAVE(0), "left-ST_OK"});
    PLAY({0, START, "join0"}, {1, FAILED(0, ST_PROTOCOL), "fail-ST_PROTOCOL"},
         {2, FAILED(0, ST_NOMEM), ""});
    PLAY({0, START, "join0"}, {1, bad, "say0-bad-map fail-ST_PROTOCOL"});
    PLAY(BEGUN, {10, DOWN(0), "say0-lost"}, {110, TIMER, "join0"},
         {111, bad, "say0-bad-map fail-ST_PROTOCOL"});
}

/* Lists are invalid if a server appears twice, ps 0 is at another position, or a server is
 * unknown. */
static void invalid_server_lists_fail_the_session(void **state)
{
    static const int lists[][3] = {{0, 1, 1}, {1, 0, -1}, {0, -1, 2}, {0, -2, 1}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const struct session_event e = {.kind = EVENT_JOIN_ANSWER,
                                        .generation = 2,
                                        .map = MAP_OTHER,
                                        .place = PLACE,
                                        .n_servers = 3,
                                        .from = lists[i]};
        PLAY(BEGUN, {10, REBASE, ""}, {11, START, "cancel0"}, {12, DOWN(0), "join0"},
             {13, e, "say0-bad-map fail-ST_PROTOCOL"});
    }
}

/* One step has no room for all actions of the session. */
static void many_actions_need_several_steps(void **state)
{
    struct session *s = make_session(4, 0);
    static struct session_out out;
    struct session_event e = START;
    int from[MAX_SERVERS], n_joins = 0;
    session_step(s, &e, 0, &out);
    e = (struct session_event)FIRST(1, from);
    e.n_servers = MAX_SERVERS;
    for (int i = 0; i < MAX_SERVERS; i++)
        from[i] = i - (i > 0) * (i + 1);
    do {
        session_step(s, &e, 0, &out);
        for (int i = 0; i < out.n; i++)
            n_joins += out.act[i].kind == ACTION_JOIN;
        e = (struct session_event)TIMER;
    } while (out.more);
    assert_int_equal(n_joins, MAX_SERVERS - 1);
    free(s);
}

static void leave_soon_stays_until_next_generation(void **state)
{
    PLAY(BEGUN, {10, SOON, "soon0"}, {11, SOON, ""}, {12, TOLD(0, 1, ST_OK), ""}, {13, REBASE, ""},
         {14, START, "out"}, {15, START, "out"}, {16, LEAVE(0), "goodbye0 goodbye1"},
         {17, TOLD(1, 0, ST_OK), ""}, {18, TOLD(0, 0, ST_OK), "left-ST_OK"});
    /* The request is lost, and sent again. The member leaves after the step for which it has
     * stayed. */
    PLAY(BEGUN, {10, SOON, "soon0"}, {11, TOLD(0, 1, ST_UNAVAILABLE), ""}, {1010, TIMER, ""},
         {1011, TIMER, "soon0"}, {1012, TOLD(0, 1, ST_OK), ""}, {1013, DOWN(1), "say1-lost"},
         {1014, DOWN(0), "say0-lost rebased"}, {1015, START, "out"});
    /* ps 0 is down, and training stalls: the session sends the request when ps 0 is back. */
    PLAY(BEGUN, {10, DOWN(0), "say0-lost"}, {11, SOON, ""}, {110, TIMER, "join0"},
         {111, SAME(1), "open0-again"}, {112, UP(0), "say0-back soon0"});
    PLAY(BEGUN, {10, REBASE, ""}, {11, START, "cancel0"}, {12, DOWN(0), "join0"},
         {13, RETRY(0), ""}, {14, SOON, "soon0"}, {15, TOLD(0, 1, ST_OK), "out"});
    /* The member is in no generation yet: no step waits for it. */
    PLAY({0, START, "join0"}, {1, RETRY(0), "join0"}, {2, SOON, "out"});
}

/* A first worker keeps its index. A worker that joined later accepts another index, since ps 0 may
 * have lost its memory. */
static void renewed_index_is_accepted(void **state)
{
    for (int may_move = 0; may_move < 2; may_move++) {
        struct session *s = make_session(4, 1);
        struct session_out out;
        const struct session_event start = {.kind = EVENT_START};
        struct session_event first = FIRST(1, two);
        first.place.member = 5;
        s->cfg.may_move = may_move;
        session_step(s, &start, 0, &out);
        session_step(s, &first, 1, &out);
        assert_int_equal(s->st, may_move ? ST_OK : ST_PROTOCOL);
        assert_int_equal(s->member, may_move ? 5 : 4);
        free(s);
    }
}

/* A member that has all versions, or ends with an error, reports this to all servers, even if it
 * was never in their generation. */
static void leave_reaches_all_servers(void **state)
{
    PLAY(BEGUN, {10, DOWN(1), "say1-lost"}, {110, TIMER, "join1"},
         {111, WELCOME(1, 3), "rebased cancel0"}, {112, DOWN(0), ""},
         {113, LEAVE(1), "goodbye0 goodbye1"}, {114, TOLD(0, 0, ST_OK), ""}, {115, START, ""},
         {116, TOLD(1, 0, ST_DEADLINE), "left-ST_DEADLINE"});
    PLAY({0, LEAVE(1), "left-ST_OK"});
    PLAY({0, LEAVE_FAILED, "left-ST_OK"});
    PLAY(BEGUN, {10, DOWN(1), "say1-lost"}, {110, TIMER, "join1"},
         {111, WELCOME(1, 3), "rebased cancel0"}, {112, DOWN(0), ""},
         {113, LEAVE_FAILED, "goodbye0 goodbye1"}, {114, TOLD(0, 0, ST_OK), ""},
         {115, TOLD(1, 0, ST_OK), "left-ST_OK"});
    PLAY(BEGUN, {10, {.kind = EVENT_CLOSE}, "cancel0 cancel1"}, {11, DOWN(0), ""},
         {12, DOWN(1), ""}, {13, START, ""}, {99999, TIMER, ""});
}

int main(void)
{
    return RUN_TESTS(broken_stream_is_joined_again, planned_change_ends_chunk_by_chunk,
                     stream_broken_at_the_end_is_opened_again,
                     newer_generation_ends_the_present_one,
                     newer_generation_while_joining_restarts_join, older_answers_are_ignored,
                     ps0_is_contacted_about_lost_server, retry_may_report_newer_generation,
                     server_without_chunks_is_not_awaited, join_reports_newest_generation,
                     init_sends_first_values, final_errors_fail_the_session,
                     invalid_server_lists_fail_the_session, many_actions_need_several_steps,
                     leave_soon_stays_until_next_generation, renewed_index_is_accepted,
                     leave_reaches_all_servers);
}
