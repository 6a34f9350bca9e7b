/* tests/net_plan_test.c - plans and the states of servers on the wire: valid messages arrive
 * unchanged, and invalid ones are refused with a sentence, whatever program sends them. */
#include "net/wire/message.h"
#include "net/wire/plan.h"
#include "tests/check.h"
#include "tests/net_wire.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CHUNKS = 3 };

static int members[] = {0, 2, 5}, shard[] = {1, 0, 1}, held_by[] = {0, 0, 2};
static char *servers[] = {"10.0.0.7:2221", "ps1.example:2221"};
static char *holders[] = {"10.0.0.7:2221", "ps1.example:2221", "[::1]:2223"};
static struct net_contribution contributed[] = {{0, 120, 8}, {3, 40, 2}, {5, 119, 7}};
static struct chunks *chunks;

static int set_up(void **state)
{
    const struct net_param params[] = {{.name = "a", .shape = {2, {64, 1024}}},
                                       {.name = "b", .shape = {1, {20000}}, .keep = 0.5f},
                                       {.name = "c", .shape = {1, {70000}}}};
    assert_int_equal(chunks_create(params, 3, 1 << 20, &chunks), ST_OK);
    assert_int_equal(chunks->n_chunks, N_CHUNKS);
    return 0;
}

static int tear_down(void **state)
{
    chunks_destroy(chunks);
    return 0;
}

/* Returns a plan for two servers that resumes from the memory of three servers. */
static struct net_plan good_plan(void)
{
    struct net_plan p = {.generation = 9,
                         .ps0 = UINT64_MAX - 1,
                         .step = 120,
                         .position = 36000,
                         .job = {.n_workers = 3,
                                 .aggregate = 3,
                                 .train_steps = 5000,
                                 .seed = 7,
                                 .push_dtype = DTYPE_BF16,
                                 .batch = 100},
                         .chunks = chunks,
                         .n_members = 3,
                         .member = members,
                         .servers = {2, servers},
                         .shard = shard,
                         .source = PLAN_MEMORY,
                         .before = 8,
                         .holders = {3, holders},
                         .held_by = held_by,
                         .n_contributed = 3,
                         .contributed = contributed,
                         .gates = {50, 4, 100, 1}};
    optim_defaults(OPTIM_ADAM, &p.job.optim);
    p.job.optim.total_steps = 5000;
    return p;
}

static void assert_same_hosts(const struct hosts *a, const struct hosts *b)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++)
        assert_string_equal(a->addr[i], b->addr[i]);
}

static void assert_same_plan(const struct net_plan *a, const struct net_plan *b)
{
    char why[256];
    assert_int_equal(a->generation, b->generation);
    assert_true(a->ps0 == b->ps0);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->position, b->position);
    assert_int_equal(chunks_compare(a->chunks, b->chunks, why, sizeof why), ST_OK);
    assert_int_equal(a->job.n_workers, b->job.n_workers);
    assert_int_equal(a->job.batch, b->job.batch);
    assert_int_equal(a->job.seed, b->job.seed);
    assert_int_equal(a->job.push_dtype, b->job.push_dtype);
    assert_int_equal(a->job.optim.kind, b->job.optim.kind);
    assert_int_equal(a->job.optim.total_steps, b->job.optim.total_steps);
    assert_int_equal(a->n_members, b->n_members);
    assert_memory_equal(a->member, b->member, (size_t)a->n_members * sizeof(int));
    assert_same_hosts(&a->servers, &b->servers);
    assert_memory_equal(a->shard, b->shard, N_CHUNKS * sizeof(int));
    assert_int_equal(a->source, b->source);
    assert_string_equal(a->restore, b->restore);
    assert_int_equal(a->before, b->before);
    assert_same_hosts(&a->holders, &b->holders);
    assert_int_equal(!a->held_by, !b->held_by);
    assert_memory_equal(&a->gates, &b->gates, sizeof a->gates);
    if (a->held_by)
        assert_memory_equal(a->held_by, b->held_by, N_CHUNKS * sizeof(int));
    assert_int_equal(a->n_contributed, b->n_contributed);
    for (int i = 0; i < a->n_contributed; i++) {
        assert_int_equal(a->contributed[i].member, b->contributed[i].member);
        assert_int_equal(a->contributed[i].version, b->contributed[i].version);
        assert_int_equal(a->contributed[i].generation, b->contributed[i].generation);
    }
}

static void plan_contains_contributions(void **state)
{
    static const struct net_contribution at_122[] = {{0, 122, 9},
                                                     {2, 122, 9},
                                                     {3, 40, 2},
                                                     {5, 122, 9}},
                                         at_120[] = {{0, 120, 8}, {3, 40, 2}, {5, 119, 7}},
                                         at_39[] = {{0, 39, 8}, {3, 39, 2}, {5, 39, 7}};
    const struct net_contribution *const want[] = {at_122, at_120, at_39};
    const int64_t steps[] = {122, 120, 39};
    const int most[] = {4, 3, 3};
    struct net_plan p = good_plan();
    p.job.aggregate = 0;
    for (int i = 0; i < 3; i++) {
        struct net_contribution *list;
        int n;
        assert_int_equal(net_plan_contributions(&p, steps[i], &list, &n), ST_OK);
        assert_int_equal(n, most[i]);
        for (int k = 0; k < n; k++) {
            assert_int_equal(list[k].member, want[i][k].member);
            assert_int_equal(list[k].version, want[i][k].version);
            struct net_contribution c = net_plan_contributed(&p, list[k].member, steps[i]);
            assert_int_equal(c.version, list[k].version);
            assert_int_equal(list[k].generation, want[i][k].generation);
            assert_int_equal(c.generation, list[k].generation);
        }
        free(list);
    }
    assert_int_equal(net_plan_contributed(&p, 2, 120).version,
                     0); /* member 2 joins with this plan */
    assert_int_equal(net_plan_contributed(&p, 4, 122).version, 0);
    p.job.sync_mode = JOB_ASYNC; /* each version has one contribution */
    assert_int_equal(net_plan_contributed(&p, 0, 122).version, 0);
}

static void plan_has_ranks_and_positions(void **state)
{
    struct net_plan p = good_plan(), *copy;
    assert_int_equal(net_plan_rank(&p, 0), 0);
    assert_int_equal(net_plan_rank(&p, 2), 1);
    assert_int_equal(net_plan_rank(&p, 5), 2);
    assert_int_equal(net_plan_rank(&p, 1), -1);
    assert_int_equal(net_plan_rank(&p, -1), -1);
    assert_int_equal(net_plan_rank(&p, 6), -1);
    assert_int_equal(net_plan_server(&p, "ps1.example:2221"), 1);
    assert_int_equal(net_plan_server(&p, "ps1.example:2222"), -1);
    assert_int_equal(net_plan_position(&p, 120), 36000);
    assert_int_equal(net_plan_position(&p, 122), 36600);
    assert_int_equal(net_plan_position(&p, 119), 36000);
    p.job.sync_mode = JOB_ASYNC;
    assert_int_equal(net_plan_position(&p, 122), 36200);
    assert_int_equal(net_plan_copy(&p, &copy), ST_OK);
    assert_same_plan(&p, copy);
    assert_ptr_not_equal(copy->member, p.member);
    assert_ptr_not_equal(copy->servers.addr[0], p.servers.addr[0]);
    net_plan_free(copy);
    net_plan_free(NULL);
}

static void assert_comes_through(struct net_plan *p)
{
    struct net_control_reply got, reply = {.number = 1,
                                           .generation = p->generation,
                                           .incarnation = 3,
                                           .step = -1,
                                           .stop = 4,
                                           .stop_step = 119,
                                           .plan = p,
                                           .settled = 8,
                                           .drained = 1,
                                           .failed = 1};
    assert_int_equal(wire_through(&message_control_reply, &reply, &got), ST_OK);
    assert_non_null(got.plan);
    assert_same_plan(p, got.plan);
    assert_int_equal(got.stop, 4);
    assert_int_equal(got.stop_step, 119);
    assert_int_equal(got.settled, 8);
    assert_int_equal(got.drained, 1);
    assert_int_equal(got.failed, 1);
    message_control_reply_free(&got);
    assert_null(got.plan);
}

static void plans_arrive_unchanged(void **state)
{
    struct net_plan p = good_plan();
    assert_comes_through(&p);
    p.source = PLAN_CHECKPOINT;
    p.before = 0;
    p.holders = (struct hosts){0, NULL};
    p.held_by = NULL;
    snprintf(p.restore, sizeof p.restore, "weir-120.json");
    assert_comes_through(&p);
    p.source = PLAN_FIRST;
    p.restore[0] = 0;
    p.step = 0;
    p.position = 0;
    p.n_contributed = 0;
    assert_comes_through(&p);
}

static void assert_refused(const struct net_plan *p, const char *what)
{
    struct net_control_reply got, reply = {.generation = p->generation, .plan = NULL};
    struct net_plan copy = *p;
    reply.plan = &copy;
    if (wire_through(&message_control_reply, &reply, &got) != ST_INVALID)
        fail_msg("accepted: a plan with %s", what);
}

#define REFUSED(change)                                                                            \
    do {                                                                                           \
        struct net_plan p = good_plan();                                                           \
        change;                                                                                    \
        assert_refused(&p, #change);                                                               \
    } while (0)

static void invalid_plans_are_refused(void **state)
{
    int falling[] = {0, 5, 2}, twice[] = {0, 2, 2}, far[] = {0, 2, JOB_MAX_WORKERS};
    int nowhere[] = {0, 1, 2}, below[] = {0, 1, -1}, three[] = {0, 1, 3};
    char *same[] = {"a:1", "a:1"}, *bare[] = {"a:1", "b"};
    REFUSED(p.generation = 0);
    REFUSED(p.generation = UINT64_MAX);
    REFUSED(p.step = -1);
    REFUSED(p.step = INT64_MAX);
    REFUSED(p.position = UINT64_MAX);
    REFUSED(p.job.n_workers = 0);
    REFUSED(p.job.batch = -1);
    REFUSED(p.job.train_steps = -1);
    REFUSED(p.n_members = 0);
    REFUSED(p.member = falling);
    REFUSED(p.member = twice);
    REFUSED(p.member = far);
    REFUSED(p.servers.n = 0);
    REFUSED(p.servers.n = 1); /* the map contains server 1 */
    REFUSED(p.servers.addr = same);
    REFUSED(p.servers.addr = bare);
    REFUSED(p.shard = nowhere);
    REFUSED(p.shard = below);
    REFUSED(p.held_by = three);
    REFUSED(p.holders.n = 0);
    REFUSED(p.before = 0);
    REFUSED(p.before = 9);
    REFUSED(p.source = PLAN_CHECKPOINT); /* the checkpoint has no name */
    REFUSED(p.source = PLAN_CHECKPOINT; snprintf(p.restore, sizeof p.restore, "../x"));
    REFUSED(p.source = PLAN_FIRST);
    struct net_contribution none[] = {{0, 0, 1}}, later[] = {{0, 121, 1}},
                            again[] = {{4, 1, 1}, {4, 2, 1}}, away[] = {{JOB_MAX_WORKERS, 1, 1}};
    REFUSED(p.contributed = none; p.n_contributed = 1);
    REFUSED(p.contributed = later; p.n_contributed = 1);
    REFUSED(p.contributed = again; p.n_contributed = 2);
    REFUSED(p.contributed = away; p.n_contributed = 1);
}

static void maps_of_another_length_are_refused(void **state)
{
    struct net_plan p = good_plan();
    struct chunks other = *chunks;
    const struct net_param param = {.name = "a", .shape = {2, {64, 1024}}};
    struct chunks *one;
    assert_int_equal(chunks_create(&param, 1, 1 << 20, &one), ST_OK);
    other.n_params = one->n_params; /* the table has one chunk, the maps have three */
    other.params = one->params;
    p.chunks = &other;
    assert_refused(&p, "maps longer than the table");
    chunks_destroy(one);
    struct net_control_reply got, reply = {.generation = 8};
    p = good_plan();
    reply.plan = &p; /* its generation is 9 */
    assert_int_equal(wire_through(&message_control_reply, &reply, &got), ST_INVALID);
    reply = (struct net_control_reply){.stop = 1, .stop_step = -2};
    assert_int_equal(wire_through(&message_control_reply, &reply, &got), ST_INVALID);
}

static struct net_missing absent[] = {{2, 1500, 1}, {4095, 0, 0}};

#define AN_ID "0123456789abcdef0123456789abcdef"
static struct net_part part = {9, 120, 1, 2, 1 << 20, 0xabcd};
static struct net_kept kept[] = {{9, 120}, {8, 100}};

static const struct net_control good_control = {.server = 1,
                                                .n_servers = 2,
                                                .incarnation = 5,
                                                .generation = 9,
                                                .ps0 = UINT64_MAX - 1,
                                                .heard_ps0 = UINT64_MAX - 2,
                                                .heard_epoch = 3,
                                                .unreadable = 10,
                                                .address = "ps1.example:2221",
                                                .leaving = 1,
                                                .stop = 3,
                                                .stopped = 1,
                                                .lowest = 119,
                                                .highest = 120,
                                                .n_missing = 2,
                                                .missing = absent,
                                                .folder = AN_ID,
                                                .knows_parts = 1,
                                                .n_parts = 1,
                                                .parts = &part};

static void server_states_arrive_unchanged(void **state)
{
    struct net_control got, joins = {.incarnation = 6, .joining = 1, .address = "h:1"};
    assert_int_equal(wire_through(&message_control, &good_control, &got), ST_OK);
    assert_string_equal(got.address, good_control.address);
    assert_true(got.ps0 == UINT64_MAX - 1 && got.heard_ps0 == UINT64_MAX - 2);
    assert_int_equal(got.heard_epoch, 3);
    assert_int_equal(got.unreadable, 10);
    assert_int_equal(got.leaving, 1);
    assert_int_equal(got.joining, 0);
    assert_int_equal(got.stop, 3);
    assert_int_equal(got.stopped, 1);
    assert_int_equal(got.lowest, 119);
    assert_int_equal(got.highest, 120);
    assert_int_equal(got.n_missing, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(got.missing[i].member, absent[i].member);
        assert_int_equal(got.missing[i].ms, absent[i].ms);
        assert_int_equal(got.missing[i].came, absent[i].came);
    }
    assert_string_equal(got.folder, AN_ID);
    assert_true(got.knows_parts && got.n_parts == 1);
    assert_true(got.parts->generation == 9 && got.parts->step == 120 && got.parts->server == 1);
    assert_true(got.parts->n_servers == 2 && got.parts->bytes == 1 << 20);
    assert_int_equal(got.parts->crc32c, 0xabcd);
    message_control_free(&got);
    assert_null(got.missing);
    assert_null(got.parts);
    assert_int_equal(wire_through(&message_control, &joins, &got), ST_OK);
    assert_true(!got.folder[0] && !got.knows_parts && !got.parts);
    assert_int_equal(got.joining, 1);
    assert_null(got.missing);
    /* A server that joined later keeps `joining`, so a message may have it together with chunks and
     * missing members. */
    joins.missing = absent;
    joins.n_missing = 2;
    assert_int_equal(wire_through(&message_control, &joins, &got), ST_OK);
    assert_int_equal(got.n_missing, 2);
    message_control_free(&got);
}

static void replies_list_kept_checkpoints(void **state)
{
    struct net_control_reply got, reply = {.number = 3,
                                           .step = -1,
                                           .stop_step = -1,
                                           .folder = AN_ID,
                                           .knows_kept = 1,
                                           .older_stay = 1,
                                           .n_kept = 2,
                                           .kept = kept};
    assert_int_equal(wire_through(&message_control_reply, &reply, &got), ST_OK);
    assert_string_equal(got.folder, AN_ID);
    assert_true(got.knows_kept && got.older_stay && got.n_kept == 2);
    assert_memory_equal(got.kept, kept, sizeof kept);
    message_control_reply_free(&got);
    assert_null(got.kept);
    reply.folder[31] = 'g';
    assert_int_equal(wire_through(&message_control_reply, &reply, &got), ST_INVALID);
    memcpy(reply.folder, AN_ID, sizeof reply.folder);
    struct net_kept many[CONTROL_MAX_KEPT + 1] = {{1, 1}};
    reply.kept = many;
    reply.n_kept = CONTROL_MAX_KEPT + 1;
    assert_int_equal(wire_through(&message_control_reply, &reply, &got), ST_INVALID);
}

#define CONTROL_REFUSED(change)                                                                    \
    do {                                                                                           \
        struct net_control c = good_control, got;                                                  \
        change;                                                                                    \
        if (wire_through(&message_control, &c, &got) != ST_INVALID)                                \
            fail_msg("accepted: a request with %s", #change);                                      \
    } while (0)

static void invalid_server_states_are_refused(void **state)
{
    struct net_missing nobody[] = {{JOB_MAX_WORKERS, 0, 0}, {0, 0, 0}};
    struct net_missing early[] = {{0, -1, 0}, {0, 0, 0}};
    static struct net_missing crowd[JOB_MAX_WORKERS + 1];
    CONTROL_REFUSED(c.joining = 1); /* a server with a number is not joining */
    CONTROL_REFUSED(c.joining = 1; c.server = 0; c.n_servers = 0; c.address[0] = 0);
    CONTROL_REFUSED(c.generation = UINT64_MAX);
    CONTROL_REFUSED(c.heard_epoch = UINT64_MAX);
    CONTROL_REFUSED(c.unreadable = UINT64_MAX);
    CONTROL_REFUSED(c.server = 2);
    CONTROL_REFUSED(snprintf(c.address, sizeof c.address, "nowhere"));
    CONTROL_REFUSED(snprintf(c.address, sizeof c.address, "a:1,b:2"));
    CONTROL_REFUSED(c.lowest = -2);
    CONTROL_REFUSED(c.lowest = 121);
    CONTROL_REFUSED(c.highest = INT64_MAX);
    CONTROL_REFUSED(c.missing = nobody);
    CONTROL_REFUSED(c.missing = early);
    CONTROL_REFUSED(c.missing = crowd; c.n_missing = JOB_MAX_WORKERS + 1);
    CONTROL_REFUSED(c.folder[0] = 'x');
    CONTROL_REFUSED(c.folder[31] = 0);
    struct net_part many[CONTROL_MAX_PARTS + 1] = {part}, nobodys = part, endless = part;
    nobodys.server = 2;
    endless.bytes = UINT64_MAX;
    CONTROL_REFUSED(c.parts = many; c.n_parts = CONTROL_MAX_PARTS + 1);
    CONTROL_REFUSED(c.parts = &nobodys);
    CONTROL_REFUSED(c.parts = &endless);
}

int main(void)
{
    return RUN_GROUP(set_up, tear_down, plan_has_ranks_and_positions, plan_contains_contributions,
                     plans_arrive_unchanged, invalid_plans_are_refused,
                     maps_of_another_length_are_refused, server_states_arrive_unchanged,
                     replies_list_kept_checkpoints, invalid_server_states_are_refused);
}
