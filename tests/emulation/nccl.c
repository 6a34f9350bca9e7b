/* tests/emulation/nccl.c - the functions of NCCL that the backend calls, between the emulated cards
 * of one process. A collective is a piece of work in each rank's stream, deferred like copies. The
 * first stream that reaches it runs all other streams up to it, and sums in the ranks' order. The
 * emulation is strict where NCCL would hang or be undefined: ranks that call the same collective
 * with different counts, a call outside a group, a stream or a buffer of another card. A rank that
 * never arrives ends the program after a deadline. A communicator does not block: the request of a
 * group is done only after some queries of its state, and until then no other request is allowed.
 * So a backend that continues too early finds no work on its streams. NCCL never returns from
 * ncclCommAbort or ncclCommDestroy while CUDA graphs contain work of the communicators: the
 * emulation ends the program. WEIR_EMULATED_NCCL: "absent"
 * (there is no library), "fail=N" (the N-th collective fails, from 0), "hang=N" (the N-th
 * collective does not end before an abort), "block=N" (the connections that the N-th collective
 * needs are never established, so its communicators stay busy), "block=init" (the same for
 * ncclCommInitRankConfig), "stuck" (ncclGetUniqueId does not return), "wrong" (every sum is too
 * large by one), "error=CALL:N" (the N-th call of this function, from 0, returns an error and does
 * nothing), "error=state:N" (ncclCommGetAsyncError succeeds, and the state that it reports is an
 * error). emulation_nccl_errors counts the last two kinds. */
#include "kernels/cuda/groups/nccl.h"
#include "base/guarded.h"
#include "base/log.h"
#include "tests/emulation/errors.h"
#include "tests/emulation/graph.h"
#include "tests/emulation/machine.h"
#include "tests/emulation/runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RANKS = 16, WAIT_MS = 60000 };

/* Arguments of a rank's call. */
struct request {
    int gathers; /* an all-gather, not a reduce-scatter */
    const float *send;
    float *receive; /* NULL: no pending request */
    size_t count;
    cudaStream_t stream;
};

struct collective {
    struct clique *clique;
    int gathers;
    size_t count;
    int n_posted; /* number of ranks that have made their call */
    int hangs, is_said, done;
    struct {
        const float *send;
        float *receive;
        cudaStream_t stream;
        uint64_t number;
    } rank[MAX_RANKS];
};

/* The communicators of one ncclUniqueId, guarded by emulation_streams. It is never freed, since
 * streams may still have to run its collectives. */
struct clique {
    int n, n_ranks, aborted; /* n_ranks: ranks that have arrived */
    int n_captured;          /* number of requests that graphs contain */
    int device[MAX_RANKS];
    int n_called[MAX_RANKS]; /* number of collectives that each rank has called */
    struct collective **collective;
    int n_collectives, cap_collectives;
    struct clique *next;
};

struct ncclComm {
    struct clique *clique;
    int rank;
    int finalized;
    int polls; /* number of queries that return ncclInProgress; -1: all of them */
    struct request asked;
};

static struct clique *cliques; /* guarded by emulation_streams */
static __thread int group_depth;
static __thread struct ncclComm
    *group[MAX_RANKS]; /* communicators with a request in this thread's group */
static __thread int n_group;
/* a call in the group failed, so the end of the group fails, too */
static __thread int group_failed;
static const char *last_error = "";
_Atomic int emulation_nccl_errors;

/* Returns the N if WEIR_EMULATED_NCCL is word=N; otherwise -1. */
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

/* Returns true if "error=" selects this call. */
static int errs(const char *call)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two fields below */
    static char of[64];
    static long n_calls;
    const char *e = getenv("WEIR_EMULATED_NCCL");
    char name[64];
    long number;
    if (e == NULL || sscanf(e, "error=%63[^:]:%ld", name, &number) != 2 || strcmp(name, call) != 0)
        return 0;
    pthread_mutex_lock(&lock);
    if (strncmp(of, e, sizeof of - 1) != 0) {
        snprintf(of, sizeof of, "%s", e);
        n_calls = 0;
    }
    int errs_now = n_calls++ == number;
    pthread_mutex_unlock(&lock);
    if (errs_now) {
        group_failed = group_depth > 0;
        last_error = "WEIR_EMULATED_NCCL says so";
        emulation_nccl_errors++;
    }
    return errs_now;
}

static ncclResult_t get_version(int *version)
{
    *version = 0;
    return ncclSuccess;
}

static const char *get_error_string(ncclResult_t code)
{
    return code == ncclSuccess       ? "no error"
           : code == ncclSystemError ? "emulated system error"
                                     : "emulated NCCL error";
}

static const char *get_last_error(ncclComm_t comm)
{
    return last_error;
}

static ncclResult_t get_unique_id(ncclUniqueId *out)
{
    if (errs("ncclGetUniqueId"))
        return ncclSystemError;
    if (asks("stuck")) {
        LOG_I("emulation: ncclGetUniqueId hangs");
        sleep(WAIT_MS / 1000);
        emulation_fail("ncclGetUniqueId: nobody ended the program");
    }
    const char *algorithm = getenv("NCCL_ALGO"), *protocol = getenv("NCCL_PROTO");
    LOG_I("emulation: NCCL_ALGO=%s NCCL_PROTO=%s", algorithm ? algorithm : "",
          protocol ? protocol : "");
    struct clique *q = calloc(1, sizeof *q);
    if (q == NULL)
        emulation_fail("no memory");
    pthread_mutex_lock(&emulation_streams);
    q->next = cliques;
    cliques = q;
    pthread_mutex_unlock(&emulation_streams);
    memset(out, 0, sizeof *out);
    memcpy(out->internal, &q, sizeof q);
    return ncclSuccess;
}

/* Adds a communicator to the group. At the end of the group all ranks must be present. */
static void group_add(struct ncclComm *comm)
{
    if (group_depth == 0 || n_group == MAX_RANKS)
        emulation_fail("NCCL: a call outside a group, or too many in it, is not emulated");
    group[n_group++] = comm;
}

static ncclResult_t comm_init_rank_config(ncclComm_t *out, int n, ncclUniqueId id, int rank,
                                          ncclConfig_t *config)
{
    struct clique *q;
    int device = emulation_device();
    if (errs("ncclCommInitRankConfig"))
        return ncclSystemError;
    memcpy(&q, id.internal, sizeof q);
    if (n < 1 || n > MAX_RANKS || rank < 0 || rank >= n || rank != q->n_ranks)
        return refuse("ranks that do not follow one another", ncclInvalidArgument);
    if (config->blocking != 0)
        return refuse("communicators that block are not emulated", ncclInvalidArgument);
    for (int k = 0; k < rank; k++)
        if (q->device[k] == device)
            return refuse("two ranks on one device", ncclInvalidUsage);
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        emulation_fail("no memory");
    **out = (struct ncclComm){.clique = q, .rank = rank, .polls = asks("block=init") ? -1 : 1};
    q->n = n;
    q->device[rank] = device;
    q->n_ranks++;
    group_add(*out);
    return ncclSuccess;
}

static ncclResult_t comm_end(ncclComm_t comm, int abort)
{
    struct clique *q = comm->clique;
    pthread_mutex_lock(&emulation_streams);
    if (q->n_captured > 0)
        emulation_fail("NCCL never returns: CUDA graphs contain work of this communicator");
    if (comm->polls != 0 && !abort)
        emulation_fail("ncclCommDestroy of a communicator that is busy");
    if (!comm->finalized && !abort)
        emulation_fail("ncclCommDestroy of a communicator that is not finalized");
    for (int i = 0; i < q->n_collectives && !abort && !q->aborted; i++)
        if (!q->collective[i]->done)
            emulation_fail("ncclCommDestroy while a collective is under way");
    q->aborted |= abort;
    pthread_cond_broadcast(&emulation_changed);
    pthread_mutex_unlock(&emulation_streams);
    free(comm);
    return ncclSuccess;
}

static ncclResult_t comm_finalize(ncclComm_t comm)
{
    if (errs("ncclCommFinalize"))
        return ncclSystemError;
    pthread_mutex_lock(&emulation_streams);
    if (comm->polls != 0 || comm->finalized)
        emulation_fail("ncclCommFinalize of a communicator that is busy or finalized");
    comm->finalized = 1;
    comm->polls = 1 + comm->rank;
    pthread_mutex_unlock(&emulation_streams);
    return ncclInProgress;
}

static ncclResult_t comm_abort(ncclComm_t comm)
{
    return comm_end(comm, 1);
}

static ncclResult_t comm_destroy(ncclComm_t comm)
{
    return comm_end(comm, 0);
}

static void gather(const struct collective *c)
{
    size_t n = (size_t)c->clique->n;
    float *all = calloc(n * c->count, sizeof *all);
    if (all == NULL)
        emulation_fail("no memory");
    for (size_t r = 0; r < n; r++)
        memcpy(all + r * c->count, c->rank[r].send, c->count * sizeof *all);
    for (size_t r = 0; r < n; r++)
        memcpy(c->rank[r].receive, all, n * c->count * sizeof *all);
    free(all);
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
    for (size_t k = 0; k < (size_t)n * c->count && asks("wrong"); k++)
        sum[k] += 1;
    for (int r = 0; r < n; r++)
        memcpy(c->rank[r].receive, sum + (size_t)r * c->count, c->count * sizeof *sum);
    free(sum);
}

/* Runs a collective that a stream has reached. Returns EMULATION_LATER if a query of the stream
 * would have to wait for it. */
static int collective_run(void *arg) REQUIRES(emulation_streams)
{
    struct collective *c = arg;
    struct clique *q = c->clique;
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec += WAIT_MS / 1000;
    if (c->hangs && !c->is_said)
        LOG_I("emulation: a collective hangs");
    c->is_said = c->hangs;
    while (!q->aborted && !c->done && (c->hangs || c->n_posted < q->n)) {
        if (emulation_is_query())
            return EMULATION_LATER;
        if (pthread_cond_timedwait(&emulation_changed, &emulation_streams, &ts) != 0)
            return 0;
    }
    for (int r = 0; r < q->n && !q->aborted && !c->done; r++)
        if (!emulation_run_before(c->rank[r].stream, c->rank[r].number))
            return EMULATION_LATER;
    if (!q->aborted && !c->done && c->gathers)
        gather(c);
    else if (!q->aborted && !c->done)
        add_up(c);
    c->done = 1;
    pthread_cond_broadcast(&emulation_changed);
    return 1;
}

/* Returns the clique's collective of this number. Creates it if this rank is the first to call
 * it. */
static struct collective *collective_of(struct clique *q, int number, const struct request *r)
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
    c->gathers = r->gathers;
    c->count = r->count;
    c->hangs = asked_for("hang") == number;
    q->collective[q->n_collectives++] = c;
    return c;
}

/* Queues a rank's request on its stream. The caller holds the lock. */
static ncclResult_t post(ncclComm_t comm, const struct request *r)
{
    struct clique *q = comm->clique;
    int rank = comm->rank;
    struct collective *c = collective_of(q, q->n_called[rank]++, r);
    if (c->count != r->count || c->gathers != r->gathers)
        return refuse("the ranks' calls or counts are not the same", ncclInvalidArgument);
    c->rank[rank].send = r->send;
    c->rank[rank].receive = r->receive;
    c->rank[rank].stream = r->stream;
    c->rank[rank].number = emulation_queue(r->stream, collective_run, c);
    c->n_posted++;
    pthread_cond_broadcast(&emulation_changed);
    return ncclSuccess;
}

/* A request that was recorded in a graph. */
struct recorded {
    ncclComm_t comm;
    struct request request;
};

/* Queues the request again, in a launch of its graph, whose stream is `s`. */
static void post_again(struct CUstream_st *s, const void *args)
{
    const struct recorded *r = args;
    struct request request = r->request;
    request.stream = s;
    pthread_mutex_lock(&emulation_streams);
    if (r->comm->clique->aborted)
        emulation_fail("a launch of a graph whose communicators were aborted");
    if (post(r->comm, &request) != ncclSuccess)
        emulation_fail("the ranks' graphs do not have the same collectives");
    pthread_mutex_unlock(&emulation_streams);
}

static void recorded_drop(const void *args)
{
    const struct recorded *r = args;
    pthread_mutex_lock(&emulation_streams);
    r->comm->clique->n_captured--;
    pthread_mutex_unlock(&emulation_streams);
}

/* Queues the communicator's request, or records it if its stream is captured. The caller holds the
 * lock. */
static ncclResult_t request_end(ncclComm_t comm)
{
    struct recorded r = {comm, comm->asked};
    comm->asked.receive = NULL;
    if (emulation_capture(r.request.stream)->graph == NULL)
        return post(comm, &r.request);
    emulation_graph_add_call(r.request.stream, post_again, &r, sizeof r);
    emulation_graph_on_drop(r.request.stream, recorded_drop);
    comm->clique->n_captured++;
    return ncclSuccess;
}

static ncclResult_t ask(const char *call, ncclComm_t comm, const struct request *r)
{
    struct clique *q = comm->clique;
    size_t part = r->count * sizeof(float), all = (size_t)q->n * part;
    if (r->count == 0)
        return refuse("an empty collective is not emulated", ncclInvalidArgument);
    if (emulation_stream_device(r->stream) != q->device[comm->rank])
        return refuse("a stream of another device", ncclInvalidUsage);
    emulation_check_device(call, r->send, r->gathers ? part : all);
    emulation_check_device(call, r->receive, r->gathers ? all : part);
    pthread_mutex_lock(&emulation_streams);
    int number = q->n_called[comm->rank], aborted = q->aborted;
    pthread_mutex_unlock(&emulation_streams);
    if (errs(call))
        return ncclSystemError;
    if (asked_for("fail") == number)
        return refuse("WEIR_EMULATED_NCCL says so", ncclUnhandledCudaError);
    if (aborted || comm->polls != 0)
        return refuse("a communicator that was aborted, or is busy", ncclInvalidUsage);
    comm->asked = *r;
    comm->polls = asked_for("block") == number && !asks("block=init") ? -1 : 1 + comm->rank;
    group_add(comm);
    return ncclSuccess;
}

static ncclResult_t reduce_scatter(const void *send, void *receive, size_t count,
                                   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                   cudaStream_t stream)
{
    struct request r = {0, send, receive, count, stream};
    if (type != ncclFloat || op != ncclSum)
        return refuse("only sums of floats are emulated", ncclInvalidArgument);
    return ask("ncclReduceScatter", comm, &r);
}

static ncclResult_t all_gather(const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream)
{
    struct request r = {1, send, receive, count, stream};
    if (type != ncclFloat)
        return refuse("only floats are emulated", ncclInvalidArgument);
    return ask("ncclAllGather", comm, &r);
}

static ncclResult_t group_start(void)
{
    if (errs("ncclGroupStart"))
        return ncclSystemError;
    group_depth++;
    return ncclSuccess;
}

/* Ends a group. It must contain all ranks of each request: in NCCL the other ranks would wait for
 * ever. */
static ncclResult_t group_end(void)
{
    if (--group_depth > 0)
        return ncclSuccess;
    int n = n_group, failed = group_failed;
    n_group = group_failed = 0;
    if (failed)
        return ncclInvalidUsage;
    if (errs("ncclGroupEnd"))
        return ncclSystemError;
    for (int i = 0; i < n; i++) {
        if (group[i]->clique->n != n)
            return refuse("a group without all ranks", ncclInvalidUsage);
        if (group[i]->polls < 0)
            LOG_I("emulation: a connection never comes to be");
    }
    return n > 0 ? ncclInProgress : ncclSuccess;
}

static ncclResult_t comm_get_async_error(ncclComm_t comm, ncclResult_t *out)
{
    ncclResult_t code = ncclSuccess;
    if (errs("ncclCommGetAsyncError"))
        return ncclSystemError;
    if (errs("state")) {
        *out = ncclSystemError;
        return ncclSuccess;
    }
    pthread_mutex_lock(&emulation_streams);
    *out = comm->polls != 0 ? ncclInProgress : ncclSuccess;
    if (comm->polls > 0 && --comm->polls == 0 && comm->asked.receive != NULL)
        code = request_end(comm);
    pthread_mutex_unlock(&emulation_streams);
    return code;
}

static const struct gpu_nccl nccl = {
    .get_version = get_version,
    .get_unique_id = get_unique_id,
    .comm_init_rank_config = comm_init_rank_config,
    .comm_finalize = comm_finalize,
    .comm_abort = comm_abort,
    .comm_destroy = comm_destroy,
    .comm_get_async_error = comm_get_async_error,
    .group_start = group_start,
    .group_end = group_end,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .get_error_string = get_error_string,
    .get_last_error = get_last_error,
};

const struct gpu_nccl *gpu_nccl_load(void)
{
    if (!asks("absent"))
        return &nccl;
    LOG_W("CUDA backend: NCCL cannot be loaded: WEIR_EMULATED_NCCL says so");
    return NULL;
}
