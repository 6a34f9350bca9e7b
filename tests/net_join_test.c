/* tests/net_join_test.c - the messages by which a member joins and leaves, and the replies: valid
 * messages arrive unchanged, and invalid ones are refused with a sentence, whatever program sends
 * them. */
#include "kernels/vector/optim.h"
#include "net/wire/job_steps.h"
#include "net/wire/message.h"
#include "net/wire/weir.pb-c.h"
#include "tests/check.h"
#include "tests/net_wire.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct chunks *chunks;

static int set_up(void **state)
{
    const struct net_param param = {.name = "w", .shape = {2, {64, 1024}}};
    return chunks_create(&param, 1, 1 << 17, &chunks) != ST_OK || chunks->n_chunks != 2;
}

static int tear_down(void **state)
{
    chunks_destroy(chunks);
    return 0;
}

static struct net_join good_join(void)
{
    struct net_join j = {.member = 1,
                         .incarnation = 5,
                         .address = "10.0.0.9:2222",
                         .job = {.n_workers = 2,
                                 .aggregate = 2,
                                 .train_steps = 100,
                                 .epochs = 1.5,
                                 .outer_unsaid = JOB_OUTER_ALL,
                                 .batch = 64},
                         .chunks = chunks,
                         .generation = 3,
                         .ps0 = UINT64_MAX - 1};
    optim_defaults(OPTIM_SGD, &j.job.optim);
    return j;
}

/* Packs and unpacks a join message. *got, without the chunks, is valid until the next call. */
static enum status join_through(const struct net_join *join, struct net_join *got)
{
    static struct net_join last;
    struct chunks *made = NULL;
    struct wire w = {.why = ""};
    message_join_free(&last);
    assert_int_equal(message_join_pack(join, &w.data, &w.bytes), ST_OK);
    enum status st = wire_end(&w, message_join_unpack(w.data, w.bytes, &last, &made, w.why));
    chunks_destroy(made);
    *got = last;
    return st;
}

static void joins_arrive_unchanged(void **state)
{
    struct net_join got, join = good_join();
    assert_int_equal(join_through(&join, &got), ST_OK);
    assert_int_equal(got.member, 1);
    assert_true(got.generation == 3 && got.ps0 == UINT64_MAX - 1);
    assert_int_equal(got.job.n_workers, 2);
    assert_int_equal(got.job.batch, 64);
    assert_true(got.job.epochs == 1.5);
    assert_int_equal(got.job.outer_unsaid, JOB_OUTER_ALL);
    assert_string_equal(got.address, "10.0.0.9:2222");
    join.address = NULL;
    assert_int_equal(join_through(&join, &got), ST_OK);
    assert_string_equal(got.address, "");
    join.member = 4000; /* ps 0 assigned this number in a job that began with two workers */
    assert_int_equal(join_through(&join, &got), ST_OK);
    assert_int_equal(got.member, 4000);
    join.member = -1;
    join.job.n_workers = 0;
    join.job.aggregate = 0;
    assert_int_equal(join_through(&join, &got), ST_OK);
    assert_int_equal(got.member, -1);
    assert_int_equal(got.job.n_workers, 0);
    assert_int_equal(got.job.aggregate, 0);
    join.member = 7; /* ps 0 assigned this number */
    assert_int_equal(join_through(&join, &got), ST_OK);
    assert_int_equal(got.member, 7);
}

/* Factors of a parameter cross the wire, also 0; 1 is left out. */
static void factors_cross_the_wire(void **state)
{
    static const struct optim_factors want[] = {{1, 1}, {0, 1}, {0.1f, 0}, {1, 3}};
    enum { N = sizeof want / sizeof *want };
    static const char *const names[N] = {"a", "b", "c", "d"};
    struct net_param p[N];
    struct net_join got, join = good_join();
    struct chunks *sent = NULL, *made = NULL;
    struct wire w = {.why = ""};
    for (int i = 0; i < N; i++)
        p[i] = (struct net_param){
            .name = names[i], .shape = {1, {4}}, .has_factors = true, .factors = want[i]};
    assert_int_equal(chunks_create(p, N, 8192, &sent), ST_OK);
    join.chunks = sent;
    assert_int_equal(message_join_pack(&join, &w.data, &w.bytes), ST_OK);
    assert_int_equal(wire_end(&w, message_join_unpack(w.data, w.bytes, &got, &made, w.why)), ST_OK);
    for (int i = 0; i < N; i++)
        assert_memory_equal(&made->params[i].factors, &want[i], sizeof want[i]);
    assert_int_equal(made->n_chunks, N);
    message_join_free(&got);
    chunks_destroy(made);
    sent->params[2].factors.rate = -0.5f;
    w = (struct wire){.why = ""};
    assert_int_equal(message_join_pack(&join, &w.data, &w.bytes), ST_OK);
    assert_int_equal(message_join_unpack(w.data, w.bytes, &got, &made, w.why), ST_INVALID);
    assert_string_equal(
        w.why,
        "parameter 2 'c' has a factor of the learning rate or of the weight decay that is negative or not finite");
    free(w.data);
    chunks_destroy(sent);
}

/* The optimizer, its schedule, the mode and the two dtypes cross the wire by their names. */
static void every_name_crosses_the_wire(void **state)
{
    struct net_join got, join = good_join();
    for (int i = 0; i < OPTIM_N_KINDS; i++) {
        optim_defaults((enum optim_kind)i, &join.job.optim);
        join.job.optim.schedule = (enum optim_schedule)(i % SCHEDULE_N_KINDS);
        join.job.optim.warmup_steps = (uint64_t)i * 10;
        join.job.optim.lr_decay = 0.5f;
        join.job.optim.lr_decay_steps = 3;
        join.job.optim.clip_value = i % 2 ? 0.25f : 0;
        join.job.optim.clip_norm = i % 2 ? 0 : 4;
        join.job.optim.n_boundaries = 2;
        join.job.optim.boundary[0] = 7;
        join.job.optim.boundary[1] = 70;
        join.job.sync_mode = (enum job_sync_mode)(i % JOB_N_MODES);
        join.job.push_dtype = (enum dtype)(i % DTYPE_N_KINDS);
        enum dtype version = (enum dtype)((i + 1) % 3);
        if (i % JOB_N_MODES == JOB_SYNC) /* int8 and int4 are only for lockstep */
            version = i % 2 ? DTYPE_INT8 : DTYPE_INT4;
        join.job.version_dtype = version;
        join.job.optim.ema_decay = dtype_block(version) > 1 ? 0 : 0.875f;
        join.job.local_steps = i % JOB_N_MODES == JOB_SYNC ? i * 7 : 0;
        join.job.fragments = join.job.local_steps > 1 ? 2 : 0;
        join.job.batch = 64 * job_local_steps(&join.job);
        if (join.job.local_steps > 1) {
            join.job.optim.clip_value = join.job.optim.clip_norm = 0;
            optim_defaults((enum optim_kind)((i + 1) % OPTIM_N_KINDS), &join.job.local);
        }
        assert_int_equal(join_through(&join, &got), ST_OK);
        assert_int_equal(got.job.optim.kind, i);
        assert_int_equal(got.job.local_steps, join.job.local_steps);
        assert_int_equal(got.job.fragments, join.job.fragments);
        if (join.job.local_steps > 1) {
            assert_int_equal(got.job.local.kind, (i + 1) % OPTIM_N_KINDS);
            assert_int_equal(got.job.local.total_steps, 100 * join.job.local_steps);
        }
        assert_int_equal(got.job.optim.schedule, i % SCHEDULE_N_KINDS);
        assert_int_equal(got.job.optim.warmup_steps, i * 10);
        assert_true(got.job.optim.lr_decay == 0.5f);
        assert_int_equal(got.job.optim.lr_decay_steps, 3);
        assert_true(got.job.optim.clip_value == join.job.optim.clip_value);
        assert_true(got.job.optim.clip_norm == join.job.optim.clip_norm);
        assert_true(got.job.optim.ema_decay == join.job.optim.ema_decay);
        assert_int_equal(got.job.optim.n_boundaries, 2);
        assert_int_equal(got.job.optim.boundary[0], 7);
        assert_int_equal(got.job.optim.boundary[1], 70);
        assert_int_equal(got.job.sync_mode, i % JOB_N_MODES);
        assert_int_equal(got.job.push_dtype, i % DTYPE_N_KINDS);
        assert_int_equal(got.job.version_dtype, version);
    }
}

/* A join contains the transformations of samples: mean and deviation of each channel, and random
 * changes. */
static void sample_transformations_cross_the_wire(void **state)
{
    struct net_join got, join = good_join();
    const char *of;
    assert_int_equal(join_through(&join, &got), ST_OK);
    assert_int_equal(got.job.normal.n, 0);
    join.job.normal.n = JOB_MAX_CHANNELS;
    for (int c = 0; c < JOB_MAX_CHANNELS; c++) {
        join.job.normal.mean[c] = 0.1f * (float)c;
        join.job.normal.std[c] = 0.1f + (float)c;
    }
    assert_int_equal(join_through(&join, &got), ST_OK);
    assert_int_equal(got.job.normal.n, JOB_MAX_CHANNELS);
    assert_int_equal(job_input_normal_differ(&join.job.normal, &got.job.normal, &of), -1);
    assert_false(job_input_augments(&got.job.augment));
    join.job.augment = (struct job_augment){1, 2, 3, JOB_MAX_AUGMENT};
    assert_int_equal(join_through(&join, &got), ST_OK);
    char here[JOB_AUGMENT_BYTES], there[JOB_AUGMENT_BYTES];
    assert_string_equal(job_input_augment_text(&got.job.augment, here),
                        job_input_augment_text(&join.job.augment, there));
    join.job.data = (struct job_data){
        .n_train = 5, .dim = {1, 2, 3}, .classes = 4, .class_names = 0xfedcba98, .files = 1};
    for (int kind = 0; kind < JOB_LABELS_N_KINDS; kind++) {
        join.job.data.labels = (enum job_labels)kind;
        assert_int_equal(join_through(&join, &got), ST_OK);
        assert_int_equal(got.job.data.labels, kind);
        assert_int_equal(got.job.data.class_names, 0xfedcba98);
        assert_int_equal(got.job.data.files, 1);
    }
}

/* The number of threads and the library's instruction set determine the order of sums, so they are
 * compared. The instruction set of vector loops is not. */
static void arithmetic_is_compared(void **state)
{
    static const char *const others[] = {"oneDNN v2.6.3, AVX2, 4 threads; vector loops AVX-512",
                                         "oneDNN v2.6.3, AVX2, 2 threads; vector loops AVX2",
                                         "oneDNN v2.6.3, AVX-512, 4 threads; vector loops AVX2",
                                         "oneDNN v2.6.3, AVX2, 4 threads, bf16; vector loops AVX2",
                                         "oneDNN v2.6.3, AVX2, 4 threads"};
    static const int want[] = {0, 1, 1, 1, 0};
    struct net_job a = good_join().job, b = a;
    a.sync_mode = b.sync_mode = JOB_SYNC;
    strcpy(a.arithmetic, "oneDNN v2.6.3, AVX2, 4 threads; vector loops AVX2");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        strcpy(b.arithmetic, others[i]);
        assert_int_equal(job_arithmetic_differs(&a, &b), want[i]);
        assert_int_equal(job_arithmetic_differs(&b, &a), want[i]);
    }
    b.arithmetic[0] = 0;
    assert_false(job_arithmetic_differs(&a, &b));
    strcpy(b.arithmetic, others[1]);
    a.sync_mode = b.sync_mode = JOB_ASYNC;
    assert_false(job_arithmetic_differs(&a, &b));
}

#define JOIN_INVALID(change)                                                                       \
    do {                                                                                           \
        struct net_join j = good_join(), got;                                                      \
        change;                                                                                    \
        if (join_through(&j, &got) != ST_INVALID)                                                  \
            fail_msg("accepted: a join with %s", #change);                                         \
    } while (0)

static void invalid_joins_are_refused(void **state)
{
    char far[JOB_ADDRESS_BYTES + 1];
    memset(far, 'x', sizeof far - 1);
    far[sizeof far - 1] = 0;
    JOIN_INVALID(j.member = JOB_MAX_WORKERS);
    JOIN_INVALID(j.member = -1); /* a worker of a job with two workers has a number */
    JOIN_INVALID(j.incarnation = 0);
    JOIN_INVALID(j.generation = UINT64_MAX);
    JOIN_INVALID(j.address = far);
    JOIN_INVALID(j.address = "a b");
    JOIN_INVALID(j.address = "a\n:1");
    JOIN_INVALID(j.address = "\xc3\xa4:1");
    JOIN_INVALID(j.job.n_workers = JOB_MAX_WORKERS + 1);
    JOIN_INVALID(j.job.aggregate = 3);
    JOIN_INVALID(j.job.n_workers = 0; j.job.aggregate = JOB_MAX_WORKERS + 1);
    JOIN_INVALID(j.job.batch = -1);
    JOIN_INVALID(j.job.train_steps = -1);
    JOIN_INVALID(j.job.outer_unsaid = JOB_OUTER_ALL + 1);
    JOIN_INVALID(j.job.epochs = -1);
    JOIN_INVALID(j.job.epochs = NAN);
    JOIN_INVALID(j.job.epochs = 1.1 * JOB_MAX_EPOCHS);
    JOIN_INVALID(j.job.staleness = -1);
    JOIN_INVALID(j.job.optim.kind = OPTIM_N_KINDS); /* crosses the wire as an unknown name */
    JOIN_INVALID(j.job.optim.schedule = SCHEDULE_N_KINDS);
    JOIN_INVALID(j.job.optim.lr_decay = 2);
    JOIN_INVALID(j.job.optim.n_boundaries = 1; j.job.optim.boundary[0] = 0);
    JOIN_INVALID(j.job.normal.n = 1; j.job.normal.std[0] = 0);
    JOIN_INVALID(j.job.normal.n = 1; j.job.normal.std[0] = INFINITY);
    JOIN_INVALID(j.job.normal.n = 1; j.job.normal.std[0] = 1; j.job.normal.mean[0] = NAN);
    JOIN_INVALID(j.job.augment.crop = JOB_MAX_AUGMENT + 1);
    struct job_data data = {
        .n_train = 5, .dim = {1, 2, 3}, .classes = 4, .labels = JOB_LABELS_N_KINDS};
    JOIN_INVALID(j.job.data = data);
    data.labels = (enum job_labels)INT32_MAX;
    JOIN_INVALID(j.job.data = data);
    JOIN_INVALID(j.job.push_dtype = DTYPE_N_KINDS);
    JOIN_INVALID(j.job.version_dtype = DTYPE_N_KINDS);
    JOIN_INVALID(j.job.version_dtype = DTYPE_INT8; j.job.sync_mode = JOB_ASYNC);
    JOIN_INVALID(j.job.local = j.job.optim; j.job.local_steps = JOB_MAX_LOCAL_STEPS * 2);
    JOIN_INVALID(j.job.local = j.job.optim; j.job.local_steps = 4; j.job.sync_mode = JOB_ASYNC;
                 j.job.optim.kind = OPTIM_NESTEROV); /* each contribution would have momentum */
    JOIN_INVALID(j.job.local = j.job.optim; j.job.local_steps = 4; j.job.sync_mode = JOB_ASYNC;
                 j.job.optim.kind = OPTIM_SGD; j.job.delay_compensation = 1);
    JOIN_INVALID(j.job.local = j.job.optim; j.job.local_steps = 4; j.job.optim.clip_norm = 1);
    JOIN_INVALID(j.job.local = j.job.optim;
                 j.job.local_steps = 5); /* 64 samples do not make 5 batches */
    JOIN_INVALID(j.job.local_steps = 4); /* the local optimizer is not valid */
    JOIN_INVALID(j.job.local = j.job.optim; j.job.local_steps = 4; j.job.train_steps = 1LL << 61);
    JOIN_INVALID(j.job.fragments = 3); /* there are only two chunks */
    JOIN_INVALID(j.job.fragments = JOB_MAX_FRAGMENTS + 1);
    JOIN_INVALID(j.job.fragments = 2; j.job.sync_mode = JOB_ASYNC);
    JOIN_INVALID(j.job.fragments = 2; j.job.optim.clip_norm = 1);
    JOIN_INVALID(j.job.version_dtype = DTYPE_INT4; j.job.aggregate = j.job.n_workers - 1);
    JOIN_INVALID(j.job.optim.ema_decay = 1);
    JOIN_INVALID(j.job.optim.ema_decay = 0.9f; j.job.version_dtype = DTYPE_INT8);
    JOIN_INVALID(j.job.optim.ema_decay = 0.9f; j.job.wire_auto = true);
    JOIN_INVALID(j.job.optim.ema_decay = 0.9f; j.job.fragments = 2);
    JOIN_INVALID(j.job.local = j.job.optim; j.job.local_steps = 4; j.job.local.ema_decay = 0.9f);
}

static int map[] = {1};
static char *servers[] = {"10.0.0.7:2221", "ps1.example:2221"};

static struct net_join_reply good_reply(void)
{
    return (struct net_join_reply){
        .answer = JOIN_WELCOME,
        .generation = 4,
        .ps0 = UINT64_MAX - 1,
        .step = 120,
        .server = map,
        .n_chunks = 1,
        .place = {.member = 5,
                  .rank = 2,
                  .n_members = 3,
                  .first_step = 120,
                  .position = 36000,
                  .train_steps = 5000,
                  .asked_steps = 6000,
                  .has_outer = true,
                  .outer = {.kind = OPTIM_NESTEROV, .learning_rate = 0.7f, .momentum = 0.9f},
                  .region = 2,
                  .n_regions = 3,
                  .contributed = 119,
                  .contributed_in = 5000002,
                  .rounding = {3, {0x81, 0, 7}}},
        .servers = {2, servers},
    };
}

static void free_reply(struct net_join_reply *reply)
{
    free(reply->server);
    hosts_free(&reply->servers);
}

static void replies_contain_the_place(void **state)
{
    struct net_join_reply got, reply = good_reply();
    assert_int_equal(wire_through(&message_reply, &reply, &got), ST_OK);
    assert_int_equal(got.place.member, 5);
    assert_int_equal(got.place.rank, 2);
    assert_int_equal(got.place.n_members, 3);
    assert_int_equal(got.place.first_step, 120);
    assert_int_equal(got.place.position, 36000);
    assert_int_equal(got.place.train_steps, 5000);
    assert_int_equal(got.place.asked_steps, 6000);
    assert_true(got.place.has_outer && got.place.outer.kind == OPTIM_NESTEROV);
    assert_true(got.place.outer.learning_rate == 0.7f && got.place.outer.momentum == 0.9f);
    assert_int_equal(got.place.region, 2);
    assert_int_equal(got.place.n_regions, 3);
    assert_int_equal(got.place.contributed, 119);
    assert_int_equal(got.place.contributed_in, 5000002);
    assert_int_equal(got.place.rounding.n_bytes, 3);
    assert_memory_equal(got.place.rounding.bits, reply.place.rounding.bits, 3);
    assert_true(net_place_sample(&got.place, net_place_position(&got.place, 10, 121)) ==
                3 * (36000 + (3 + 2) * 10) + 2);
    got.place.n_regions = 0;
    assert_true(net_place_sample(&got.place, 77) == 77);
    assert_int_equal(got.n_chunks, 1);
    assert_int_equal(got.server[0], 1);
    assert_int_equal(got.servers.n, 2);
    assert_string_equal(got.servers.addr[1], "ps1.example:2221");
    free_reply(&got);
    reply.place = (struct net_place){.n_members = 0};
    reply.servers.n = 0;
    assert_int_equal(wire_through(&message_reply, &reply, &got), ST_OK);
    assert_int_equal(got.place.n_members, 0);
    assert_int_equal(got.servers.n, 0);
    free_reply(&got);
    reply = good_reply();
    reply.answer = JOIN_RETRY; /* this answer contains only the generation */
    assert_int_equal(wire_through(&message_reply, &reply, &got), ST_OK);
    assert_null(got.server);
    assert_int_equal(got.n_chunks, 0);
    assert_int_equal(got.servers.n, 0);
    assert_int_equal(got.place.n_members, 0);
    assert_int_equal(got.generation, reply.generation);
    assert_true(got.ps0 == reply.ps0);
}

#define REPLY_INVALID(change)                                                                      \
    do {                                                                                           \
        struct net_join_reply r = good_reply(), got = {.server = NULL};                            \
        change;                                                                                    \
        if (wire_through(&message_reply, &r, &got) != ST_INVALID)                                  \
            fail_msg("accepted: a reply with %s", #change);                                        \
        assert_null(got.server);                                                                   \
    } while (0)

static void invalid_replies_are_refused(void **state)
{
    char *same[] = {"a:1", "a:1"}, *bare[] = {"a:1", ""};
    int nowhere[] = {2}, below[] = {-1};
    REPLY_INVALID(r.step = -2);
    REPLY_INVALID(r.generation = UINT64_MAX);
    REPLY_INVALID((r.answer = JOIN_RETRY, r.generation = UINT64_MAX));
    REPLY_INVALID(r.step = INT64_MAX);
    REPLY_INVALID(r.server = nowhere);
    REPLY_INVALID(r.server = below);
    REPLY_INVALID(r.servers.addr = same);
    REPLY_INVALID(r.servers.addr = bare);
    REPLY_INVALID(r.place.rank = 3);
    REPLY_INVALID(r.place.rank = -1);
    REPLY_INVALID(r.place.member = 1); /* a member's number is not below its rank */
    REPLY_INVALID(r.place.member = JOB_MAX_WORKERS);
    REPLY_INVALID(r.place.n_members = JOB_MAX_WORKERS + 1);
    REPLY_INVALID(r.place.n_members = -1);
    REPLY_INVALID(r.place.first_step = -1);
    REPLY_INVALID(r.place.contributed = -1);
    REPLY_INVALID(r.place.contributed = 121);
    REPLY_INVALID(r.place.first_step = INT64_MAX);
    REPLY_INVALID(r.place.position = UINT64_MAX);
    REPLY_INVALID(r.place.train_steps = -1);
    REPLY_INVALID(r.place.asked_steps = -1);
    REPLY_INVALID(r.place.outer.learning_rate = NAN);
    REPLY_INVALID(r.place.outer.momentum = 1.5f);
    REPLY_INVALID(r.place.region = 3);
    REPLY_INVALID(r.place.region = -1);
    REPLY_INVALID(r.place.n_regions = JOB_MAX_WORKERS + 1);
    REPLY_INVALID(r.place.n_regions = 0); /* although region is 2 */
}

static void members_leave_now_or_soon(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct net_leave got, leave = {2, 7, i & 1, i >> 1, 1000001, ""};
        assert_int_equal(wire_through(&message_leave, &leave, &got), ST_OK);
        assert_int_equal(got.member, 2);
        assert_int_equal(got.incarnation, 7);
        assert_int_equal(got.done, i & 1);
        assert_int_equal(got.soon, i >> 1);
        assert_int_equal(got.generation, 1000001);
        assert_string_equal(got.error, "");
        leave.member = JOB_MAX_WORKERS;
        assert_int_equal(wire_through(&message_leave, &leave, &got), ST_INVALID);
    }
}

/* The error of a leaving member arrives as one short line of printable UTF-8. */
static void members_leave_with_an_error(void **state)
{
    struct net_leave got,
        leave = {.member = 2, .incarnation = 7, .error = "step 4:\n\x1b[31m\xff!\xc3\xbc\xc2\x9b"};
    assert_int_equal(wire_through(&message_leave, &leave, &got), ST_OK);
    assert_string_equal(got.error, "step 4:??[31m?!\xc3\xbc??");
    Weir__V1__LeaveRequest wire = WEIR__V1__LEAVE_REQUEST__INIT;
    char text[3 * LEAVE_ERROR_BYTES], why[MESSAGE_WHY_BYTES];
    uint8_t data[sizeof text + 16];
    wire.error = text;
    for (size_t first = 0; first < 3; first++) { /* cut between characters */
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = i < first ? 'x' : "\xe2\x82\xac"[(i - first) % 3];
        text[first + (sizeof text - 1 - first) / 3 * 3] = 0;
        size_t bytes = weir__v1__leave_request__pack(&wire, data);
        memset(&got, 'x', sizeof got);
        assert_int_equal(message_leave_unpack(data, bytes, &got, why), ST_OK);
        assert_non_null(memchr(got.error, 0, sizeof got.error));
        size_t room = LEAVE_ERROR_BYTES - 1, kept = first + (room - first) / 3 * 3;
        assert_int_equal(strlen(got.error), kept);
        assert_memory_equal(got.error, text, kept);
    }
}

/* Servers receive the text if it is not longer than the limit. */
static void text_on_training_data_crosses_the_wire(void **state)
{
    struct net_join got, join = good_join();
    char *text = malloc(JOB_MAX_TRAINED_ON_BYTES + 2);
    assert_non_null(text);
    memset(text, '{', JOB_MAX_TRAINED_ON_BYTES + 1);
    text[JOB_MAX_TRAINED_ON_BYTES + 1] = 0;
    assert_int_equal(join_through(&join, &got), ST_OK);
    assert_null(got.trained_on);
    join.trained_on = text; /* too long, so it is not sent */
    assert_int_equal(join_through(&join, &got), ST_OK);
    assert_null(got.trained_on);
    text[JOB_MAX_TRAINED_ON_BYTES] = 0;
    assert_int_equal(join_through(&join, &got), ST_OK);
    assert_string_equal(got.trained_on, text);

    struct wire w = {.why = ""};
    struct chunks *made = NULL;
    assert_int_equal(message_join_pack(&join, &w.data, &w.bytes), ST_OK);
    Weir__V1__JoinRequest *wire = weir__v1__join_request__unpack(NULL, w.bytes, w.data);
    assert_non_null(wire);
    free(wire->trained_on);
    text[JOB_MAX_TRAINED_ON_BYTES] = '{';
    wire->trained_on = text;
    free(w.data);
    w.bytes = weir__v1__join_request__get_packed_size(wire);
    w.data = malloc(w.bytes);
    assert_non_null(w.data);
    weir__v1__join_request__pack(wire, w.data);
    assert_int_equal(message_join_unpack(w.data, w.bytes, &got, &made, w.why), ST_INVALID);
    assert_non_null(strstr(w.why, "the description of its data is too long"));
    weir__v1__join_request__free_unpacked(wire, NULL); /* also frees the text */
    free(w.data);
}

int main(void)
{
    return RUN_GROUP(set_up, tear_down, joins_arrive_unchanged, factors_cross_the_wire,
                     every_name_crosses_the_wire, sample_transformations_cross_the_wire,
                     arithmetic_is_compared, invalid_joins_are_refused, replies_contain_the_place,
                     invalid_replies_are_refused, members_leave_now_or_soon,
                     members_leave_with_an_error, text_on_training_data_crosses_the_wire);
}
