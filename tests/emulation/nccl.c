/* tests/emulation/nccl.c - what of NCCL the backend calls, between the emulated cards of one
 * process. A collective is a piece of work in each rank's stream, put off like copies; whichever
 * stream comes to it first brings the others there, and adds in the ranks' order.
 * Strict where NCCL would hang or do anything at all: ranks that come with another count to the
 * same collective, one thread that calls for several ranks outside a group, a stream or a buffer of
 * another card. A rank that never comes ends the program after a deadline.
 * WEIR_EMULATED_NCCL: "absent" (there is no library), "fail=N" (the N-th collective fails, from 0),
 * "hang=N" (it does not end before an abort), "stuck" (ncclCommInitAll does not come back). */
#include "kernels/cuda/nccl.h"
#include "base/log.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/runtime.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RANKS = EMULATION_MAX_DEVICES, WAIT_MS = 60000 };

struct collective {
    struct clique *clique;
    size_t count;
    pthread_t poster; /* of the first rank */
    int n_posted;     /* ranks that called */
    int hangs, done;
    struct {
        const float *send;
        float *receive;
        cudaStream_t stream;
        uint64_t number;
    } rank[MAX_RANKS];
};

/* The communicators of one ncclCommInitAll; all under emulation_streams. Never freed: streams may
 * still have to go past its collectives. */
struct clique {
    int n, aborted;
    int device[MAX_RANKS];
    int n_called[MAX_RANKS]; /* collectives, per rank */
    struct collective **collective;
    int n_collectives, cap_collectives;
    struct clique *next;
};

struct ncclComm {
    struct clique *clique;
    int rank;
};

static struct clique *cliques; /* under emulation_streams */
static __thread int group_depth;
static const char *last_error = "";

/* The N of WEIR_EMULATED_NCCL=word=N; -1: something else is asked for. */
static long long asked_for(const char *word)
{
    const char *e = getenv("WEIR_EMULATED_NCCL");
    size_t n = strlen(word);
    return e != NULL && strncmp(e, word, n) == 0 && e[n] == '=' ? atoll(e + n + 1) : -1;
}

static int asks(const char *word)
{
    const char *e = getenv("WEIR_EMULATED_NCCL");
    return e != NULL && strcmp(e, word) == 0;
}

static ncclResult_t refuse(const char *why, ncclResult_t code)
{
    last_error = why;
    return code;
}

static ncclResult_t get_version(int *version)
{
    *version = 0;
    return ncclSuccess;
}

static const char *get_error_string(ncclResult_t code)
{
    return code == ncclSuccess ? "no error" : "emulated NCCL error";
}

static const char *get_last_error(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

static ncclResult_t comm_init_all(ncclComm_t *comms, int n, const int *devices)
{
    if (asks("stuck")) {
        LOG_I("emulation: ncclCommInitAll hangs");
        sleep(WAIT_MS / 1000);
        emulation_fail("ncclCommInitAll: nobody ended the program");
    }
    struct clique *q = calloc(1, sizeof *q);
    if (q == NULL || n < 1 || n > MAX_RANKS)
        emulation_fail("ncclCommInitAll: no memory, or too many ranks");
    q->n = n;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++)
            if (devices[k] == devices[i]) {
                free(q);
                return refuse("two ranks on one device", ncclInvalidUsage);
            }
        q->device[i] = devices[i];
    }
    for (int i = 0; i < n; i++) {
        comms[i] = calloc(1, sizeof **comms);
        if (comms[i] == NULL)
            emulation_fail("no memory");
        *comms[i] = (struct ncclComm){q, i};
    }
    pthread_mutex_lock(&emulation_streams);
    q->next = cliques;
    cliques = q;
    pthread_mutex_unlock(&emulation_streams);
    return ncclSuccess;
}

static ncclResult_t comm_end(ncclComm_t comm, int abort)
{
    struct clique *q = comm->clique;
    pthread_mutex_lock(&emulation_streams);
    for (int i = 0; i < q->n_collectives && !abort && !q->aborted; i++)
        if (!q->collective[i]->done)
            emulation_fail("ncclCommDestroy while a collective is under way");
    q->aborted |= abort;
    pthread_cond_broadcast(&emulation_changed);
    pthread_mutex_unlock(&emulation_streams);
    free(comm);
    return ncclSuccess;
}

static ncclResult_t comm_abort(ncclComm_t comm)
{
    return comm_end(comm, 1);
}

static ncclResult_t comm_destroy(ncclComm_t comm)
{
    return comm_end(comm, 0);
}

static ncclResult_t comm_get_async_error(ncclComm_t comm, ncclResult_t *out)
{
    (void)comm;
    *out = ncclSuccess;
    return ncclSuccess;
}

static ncclResult_t group_start(void)
{
    group_depth++;
    return ncclSuccess;
}

static ncclResult_t group_end(void)
{
    group_depth--;
    return ncclSuccess;
}

static void add_up(const struct collective *c)
{
    int n = c->clique->n;
    float *sum = calloc((size_t)n * c->count, sizeof *sum);
    if (sum == NULL)
        emulation_fail("no memory");
    for (int r = 0; r < n; r++)
        for (size_t k = 0; k < (size_t)n * c->count; k++)
            sum[k] += c->rank[r].send[k];
    for (int r = 0; r < n; r++)
        memcpy(c->rank[r].receive, sum + (size_t)r * c->count, c->count * sizeof *sum);
    free(sum);
}

/* A stream has come to it. */
static int collective_run(void *arg)
{
    struct collective *c = arg;
    struct clique *q = c->clique;
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec += WAIT_MS / 1000;
    if (c->hangs)
        LOG_I("emulation: a collective hangs");
    while (!q->aborted && !c->done && (c->hangs || c->n_posted < q->n))
        if (pthread_cond_timedwait(&emulation_changed, &emulation_streams, &ts) != 0)
            return 0;
    for (int r = 0; r < q->n && !q->aborted && !c->done; r++)
        emulation_run_before(c->rank[r].stream, c->rank[r].number);
    if (!q->aborted && !c->done)
        add_up(c);
    c->done = 1;
    pthread_cond_broadcast(&emulation_changed);
    return 1;
}

/* The number-th collective of the clique; a new one if this rank is the first to call it. */
static struct collective *collective_of(struct clique *q, int number, size_t count)
{
    if (number < q->n_collectives)
        return q->collective[number];
    if (q->n_collectives == q->cap_collectives) {
        q->cap_collectives = q->cap_collectives * 2 + 64;
        q->collective = realloc(q->collective, (size_t)q->cap_collectives * sizeof *q->collective);
    }
    struct collective *c = calloc(1, sizeof *c);
    if (q->collective == NULL || c == NULL)
        emulation_fail("no memory");
    c->clique = q;
    c->count = count;
    c->poster = pthread_self();
    c->hangs = asked_for("hang") == number;
    q->collective[q->n_collectives++] = c;
    return c;
}

/* With the lock held. */
static ncclResult_t post(const float *send, float *receive, size_t count, ncclComm_t comm,
                         cudaStream_t stream)
{
    struct clique *q = comm->clique;
    int number = q->n_called[comm->rank];
    if (asked_for("fail") == number)
        return refuse("WEIR_EMULATED_NCCL says so", ncclUnhandledCudaError);
    if (q->aborted)
        return refuse("a communicator that was aborted", ncclInvalidUsage);
    struct collective *c = collective_of(q, number, count);
    if (c->count != count)
        return refuse("the ranks' counts are not the same", ncclInvalidArgument);
    if (c->n_posted > 0 && pthread_equal(c->poster, pthread_self()) && group_depth == 0)
        return refuse("one thread calls for two ranks outside a group", ncclInvalidUsage);
    c->rank[comm->rank].send = send;
    c->rank[comm->rank].receive = receive;
    c->rank[comm->rank].stream = stream;
    c->rank[comm->rank].number = emulation_queue(stream, collective_run, c);
    c->n_posted++;
    q->n_called[comm->rank]++;
    pthread_cond_broadcast(&emulation_changed);
    return ncclSuccess;
}

static ncclResult_t reduce_scatter(const void *send, void *receive, size_t count,
                                   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                   cudaStream_t stream)
{
    struct clique *q = comm->clique;
    if (type != ncclFloat || op != ncclSum || count == 0)
        return refuse("only sums of floats are emulated", ncclInvalidArgument);
    if (emulation_stream_device(stream) != q->device[comm->rank])
        return refuse("a stream of another device", ncclInvalidUsage);
    emulation_check_device("ncclReduceScatter", send, (size_t)q->n * count * sizeof(float));
    emulation_check_device("ncclReduceScatter", receive, count * sizeof(float));
    pthread_mutex_lock(&emulation_streams);
    ncclResult_t code = post(send, receive, count, comm, stream);
    pthread_mutex_unlock(&emulation_streams);
    return code;
}

static const struct cuda_nccl nccl = {
    .get_version = get_version,
    .comm_init_all = comm_init_all,
    .comm_abort = comm_abort,
    .comm_destroy = comm_destroy,
    .comm_get_async_error = comm_get_async_error,
    .group_start = group_start,
    .group_end = group_end,
    .reduce_scatter = reduce_scatter,
    .get_error_string = get_error_string,
    .get_last_error = get_last_error,
};

const struct cuda_nccl *cuda_nccl_load(void)
{
    if (!asks("absent"))
        return &nccl;
    LOG_W("CUDA backend: NCCL cannot be loaded: WEIR_EMULATED_NCCL says so");
    return NULL;
}
