/* tests/ps_guest_test.c - silent open streams of peers that are not members: no such stream keeps
 * the values of an ended generation in memory (I9). */
#include "net/rpc/server.h"
#include "ps/service/run.h"
#include "ps/service/service.h"
#include "tests/check.h"
#include "tests/net_raw.h"

enum { GENERATIONS = 8 };

static const struct net_param model[] = {{.name = "w", .shape = {2, {331, 4}}}};
static char self_addr[] = "127.0.0.1:1";
static char *self_addrs[] = {self_addr};
static const struct hosts alone = {1, self_addrs}, no_workers = {0, NULL};

static void on_done(void *ctx)
{
}

static void begin(struct service *service, struct chunks *chunks, uint64_t generation)
{
    static const int member[] = {0, 1}, shard[2] = {0, 0};
    struct net_job job = {.n_workers = 2, .sync_mode = JOB_SYNC, .train_steps = 100, .batch = 10};
    optim_defaults(OPTIM_MOMENTUM, &job.optim);
    struct net_plan p = {.generation = generation,
                         .job = job,
                         .chunks = chunks,
                         .n_members = 2,
                         .member = (int *)member,
                         .servers = alone,
                         .shard = (int *)shard,
                         .source = PLAN_FIRST};
    assert_int_equal(generation_begin(service, &p, NULL), ST_OK);
    generation_settle(service, p.generation);
}

/* Sends one piece of a generation that does not exist. */
static void send_one(struct raw *guest, const struct net_server *server)
{
    const struct net_frame_head head = {1, 0, 99};
    const struct net_piece piece = {.kind = PIECE_PULL};
    uint8_t frame[128];
    size_t n = frame_encode_head(&head, frame);
    n += frame_encode_piece_head(&piece, 0, frame + n);
    raw_open(guest, net_server_port(server), "/weir.v1.Weir/Exchange");
    assert_true(raw_send(guest, frame, n));
}

/* Opens a stream that stays open after the answer. */
static void open_guest(struct raw *guest, const struct net_server *server)
{
    send_one(guest, server);
    assert_true(raw_recv(guest));
}

static void serve(struct service **service, struct net_server **server)
{
    const struct service_config cfg = {.address = self_addr,
                                       .ps_hosts = &alone,
                                       .worker_hosts = &no_workers,
                                       .max_model_bytes = 1 << 20,
                                       .done = on_done};
    assert_int_equal(service_create(&cfg, service), ST_OK);
    const struct net_server_config net = {.addr = "127.0.0.1:0",
                                          .handler = service_handler(*service)};
    assert_int_equal(net_server_create(&net, server), ST_OK);
}

static void streams_of_strangers_hold_no_run(void **state)
{
    static struct raw guest[GENERATIONS];
    struct run *run[GENERATIONS];
    struct service *service;
    struct net_server *server;
    struct chunks *chunks;
    int ended, held = 0;
    assert_int_equal(chunks_create(model, 1, 4096, &chunks), ST_OK);
    serve(&service, &server);
    for (int i = 0; i < GENERATIONS; i++) {
        begin(service, chunks, 10 + (uint64_t)i);
        run[i] = service_run(service, &ended);
        open_guest(&guest[i], server);
    }
    for (int i = 0; i < GENERATIONS - 1; i++)
        held += run[i]->refs > 1; /* this test holds one */
    for (int i = 0; i < GENERATIONS; i++) {
        run_unref(run[i]);
        raw_cancel(&guest[i]);
        raw_close(&guest[i]);
    }
    net_server_destroy(server);
    service_destroy(service);
    chunks_destroy(chunks);
    assert_int_equal(held, 0);
}

/* A worker has joined an earlier process of this server, and its stream reaches the new process.
 * The worker must join again. A refusal would end the worker, so the server aborts the stream. */
static void stream_before_the_job_is_aborted(void **state)
{
    static struct raw worker;
    struct service *service;
    struct net_server *server;
    serve(&service, &server);
    send_one(&worker, server);
    assert_false(raw_recv(&worker));
    assert_int_equal(raw_close(&worker), GRPC_STATUS_ABORTED);
    net_server_destroy(server);
    service_destroy(service);
}

int main(void)
{
    return RUN_TESTS(streams_of_strangers_hold_no_run, stream_before_the_job_is_aborted);
}
