/* bench/exchange_client.c - one synthetic worker for bench/exchange. It joins a job like the
 * program worker and exchanges a model with the servers step by step, but computes nothing.
 *
 * A step pushes all chunks and waits until all new versions have arrived. If --as is set, it pushes
 * the layers in the order and with the delays of a recorded backward, and waits for the versions in
 * the order of the next forward. Each worker fills its gradient, which differs from those of other
 * workers, only once. After the last step the parameters must be those that the servers compute by
 * averaging and the optimizer, and every push must have counted exactly once; otherwise the program
 * fails, because it has not measured complete exchanges.
 *
 * The last --steps steps are timed. All workers of a job make each step together, so their timed
 * windows differ only by the transfer time of the last answers. One line of JSON on stdout has the
 * begin and end of the window on CLOCK_MONOTONIC, the CPU seconds that this process and the
 * processes in --cpu_of (the servers) used in the window, the median and 99th percentile of a
 * step's time, and for each layer those of the time from the step's first push until the versions
 * of this layer and of all layers before it have arrived. */
#include "base/aligned.h"
#include "base/clock.h"
#include "base/flags.h"
#include "base/hosts.h"
#include "base/log.h"
#include "base/process.h"
#include "net/exchange/exchange.h"
#include "net/security/security.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PIDS = 64, PATTERN = 8, LEAVE_MS = 5000, LAYERS = 4 };

struct layer {
    const char *name;
    int64_t n_weights, n_biases;
    int64_t push_us; /* time from the step's first push to the push of this layer */
};

/* deep_mnist on one H100, batch 512, tf32, after bench/results/2026-11-27-h100.md: backward reaches
 * the layers from the last to the first, and fc1's gradient is large enough that the bytes of fc2
 * wait for it in the same copy. */
static const struct layer deep_mnist_h100[LAYERS] = {{"conv1", 800, 32, 500},
                                                     {"conv2", 51200, 64, 300},
                                                     {"fc1", 3211264, 1024, 0},
                                                     {"fc2", 10240, 10, 0}};

static const char *opt_ps_hosts = "", *opt_cpu_of = "";
static int64_t opt_task_index = 0, opt_workers = 1, opt_params = 1, opt_param_bytes = 1 << 20;
static int64_t opt_chunk_bytes = CHUNKS_DEFAULT_BYTES, opt_warmup = 3, opt_steps = 100;
static int64_t opt_limit_s = 120;
static int opt_log_level = LOG_LEVEL_WARN, opt_shared_memory = 0; /* opt_shared_memory 0: auto */
static int opt_optimizer = OPTIM_SGD, opt_as = 0;                 /* opt_as 0: none */

static struct security_config opt_security = {.role = ROLE_WORKER};

static const struct flag flags[] = {
    {"ps_hosts", FLAG_STRING, &opt_ps_hosts, 0, 0, "HOST:PORT,...", NULL, "Servers of the job",
     "Job:"},
    {"task_index", FLAG_INT, &opt_task_index, 0, JOB_MAX_WORKERS - 1, NULL, NULL,
     "Number of this worker", NULL},
    {"workers", FLAG_INT, &opt_workers, 1, JOB_MAX_WORKERS, NULL, NULL, "Workers in the job", NULL},
    {"params", FLAG_INT, &opt_params, 1, CHUNKS_MAX_PARAMS, NULL, NULL, "Parameters of the model",
     NULL},
    {"param_bytes", FLAG_INT, &opt_param_bytes, 4, 1e12, NULL, NULL,
     "Size of each parameter, a multiple of 4", NULL},
    {"chunk_bytes", FLAG_INT, &opt_chunk_bytes, CHUNKS_MIN_BYTES, CHUNKS_MAX_BYTES, NULL, NULL,
     "Largest piece of a parameter that is sent as one", NULL},
    {"as", FLAG_CHOICE, &opt_as, 0, 0, NULL, "none|deep_mnist_h100",
     "Model and recorded times of a step's pushes, instead of --params and --param_bytes", NULL},
    {"optimizer", FLAG_CHOICE, &opt_optimizer, 0, 0, NULL, OPTIM_NAMES, "As program worker's",
     NULL},
    {"shared_memory", FLAG_CHOICE, &opt_shared_memory, 0, 0, NULL, "auto|off",
     "As program worker's", NULL},
    {"tls_cert", FLAG_STRING, &opt_security.cert, 0, 0, "FILE", NULL,
     "As program worker's, and the next two", NULL},
    {"tls_key", FLAG_STRING, &opt_security.key, 0, 0, "FILE", NULL, "Its key", NULL},
    {"tls_ca", FLAG_STRING, &opt_security.ca, 0, 0, "FILE", NULL, "The CA", NULL},
    {"warmup", FLAG_INT, &opt_warmup, 1, 1e9, NULL, NULL, "Steps before the clock", "Measuring:"},
    {"steps", FLAG_INT, &opt_steps, 1, 1e7, NULL, NULL, "Timed steps", NULL},
    {"cpu_of", FLAG_STRING, &opt_cpu_of, 0, 0, "PID,...", NULL,
     "Further processes; the output has their CPU time within the timed steps", NULL},
    {"limit_s", FLAG_INT, &opt_limit_s, 1, 86400, NULL, NULL,
     "Longest time of the program; then SIGALRM ends it", NULL},
    {"log_level", FLAG_CHOICE, &opt_log_level, 0, 0, NULL, "debug|info|warn|error",
     "What is logged on stderr", NULL},
};
static const struct flags_program program = {
    .name = "bench_exchange_client",
    .doc = "A worker that exchanges and computes nothing; started by bench/exchange.",
    .flags = flags,
    .n_flags = sizeof flags / sizeof *flags,
};

struct client {
    struct hosts ps;
    struct chunks *chunks;
    float *params, *own_gradient;
    float *gradient;                  /* own_gradient, or the data of the segment */
    struct segment *segment, *values; /* values: has params; NULL: params are own memory */
    struct net_exchange *x;
    int n_layers; /* 1 without --as */
    int first_chunk[LAYERS + 1];
    int64_t push_ns[LAYERS];
    /* time of each timed step until the layer has its version, [opt_steps] for each layer */
    int64_t *layer_ns;
    int64_t *step_ns; /* duration of each timed step, [opt_steps] */
    clockid_t clocks[MAX_PIDS];
    int n_clocks;
};

/* Results of one timed run; CPU in nanoseconds. */
struct window {
    int64_t begin_ns, end_ns, cpu_ns, others_cpu_ns;
};

static enum status read_pids(struct client *c)
{
    for (const char *at = opt_cpu_of; *at; at += *at == ',') {
        char *end;
        errno = 0;
        long pid = strtol(at, &end, 10);
        int code = end == at || (*end && *end != ',') || pid <= 0 || c->n_clocks == MAX_PIDS
                       ? EINVAL
                       : clock_getcpuclockid((pid_t)pid, &c->clocks[c->n_clocks]);
        if (code != 0) {
            LOG_E("--cpu_of: '%.20s': %s", at, strerror(code));
            return ST_INVALID;
        }
        c->n_clocks++;
        at = end;
    }
    return ST_OK;
}

static int64_t cpu_ns(clockid_t clock)
{
    struct timespec ts = {0};
    clock_gettime(clock, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t others_cpu_ns(const struct client *c)
{
    int64_t sum = 0;
    for (int i = 0; i < c->n_clocks; i++)
        sum += cpu_ns(c->clocks[i]);
    return sum;
}

/* Returns element k of a worker's gradient: workers and neighbouring elements differ. */
static float gradient_at(int64_t worker, int64_t k)
{
    return 1e-3f * (float)(worker + 1) * (float)(1 + k % PATTERN);
}

static float *floats(int64_t n)
{
    return aligned_take((size_t)n * sizeof(float));
}

static enum status make_chunks(struct client *c, struct net_param *params, char (*names)[24],
                               int n_params)
{
    for (int i = 0; i < n_params; i++) {
        const struct layer *l = &deep_mnist_h100[i / 2 % LAYERS];
        int64_t recorded = i % 2 ? l->n_biases : l->n_weights;
        snprintf(names[i], sizeof names[i], "p%d", i);
        params[i].name = names[i];
        params[i].shape =
            (struct shape){.n_dims = 1, .dim = {opt_as ? recorded : opt_param_bytes / 4}};
    }
    return chunks_create(params, n_params, opt_chunk_bytes, &c->chunks);
}

/* Finds the chunks of each layer. A chunk of two layers belongs to the first of them, whose
 * gradient is the last. */
static void find_layers(struct client *c)
{
    c->n_layers = opt_as ? LAYERS : 1;
    c->first_chunk[c->n_layers] = c->chunks->n_chunks;
    for (int i = 1; i < c->n_layers; i++) {
        const struct net_param *p = &c->chunks->params[2 * (ptrdiff_t)i];
        bool is_shared = c->chunks->chunks[p->first_chunk].first < p->first;
        c->first_chunk[i] = p->first_chunk + is_shared;
        c->push_ns[i] = deep_mnist_h100[i].push_us * 1000;
    }
    c->push_ns[0] = opt_as ? deep_mnist_h100[0].push_us * 1000 : 0;
}

static float *take_params(struct client *c)
{
    char why[SEGMENT_WHY_BYTES];
    size_t bytes = (size_t)c->chunks->n_elems * sizeof(float);
    if (opt_shared_memory != 0 || segment_create_lent(bytes, &c->values, why) != ST_OK)
        return floats(c->chunks->n_elems);
    return segment_data(c->values);
}

static enum status make_model(struct client *c)
{
    enum status st = ST_OK;
    int n_params = opt_as ? 2 * LAYERS : (int)opt_params;
    struct net_param *params = calloc((size_t)n_params, sizeof *params);
    char(*names)[24] = calloc((size_t)n_params, sizeof *names);
    TRY(params && names ? ST_OK : ST_NOMEM);
    TRY(make_chunks(c, params, names, n_params));
    find_layers(c);
    c->params = take_params(c);
    c->own_gradient = floats(c->chunks->n_elems);
    c->step_ns = calloc((size_t)opt_steps, sizeof *c->step_ns);
    c->layer_ns = calloc((size_t)opt_steps * LAYERS, sizeof *c->layer_ns);
    TRY(c->params && c->own_gradient && c->step_ns && c->layer_ns ? ST_OK : ST_NOMEM);
    memset(c->params, 0, (size_t)c->chunks->n_elems * sizeof *c->params);
done:
    if (st == ST_NOMEM)
        LOG_E("out of memory for the model");
    free(params);
    free(names);
    return st;
}

static enum status make_exchange(struct client *c)
{
    struct net_exchange_config cfg = {
        .ps_hosts = &c->ps,
        .params = c->params,
        .shared_memory = opt_shared_memory == 0,
        .values = c->values,
        .join = {.member = (int)opt_task_index,
                 .incarnation = ((uint64_t)clock_now_ns() << 20) | (uint64_t)getpid(),
                 .job = {.n_workers = (int)opt_workers,
                         .sync_mode = JOB_SYNC,
                         .train_steps = opt_warmup + opt_steps},
                 .chunks = c->chunks},
    };
    optim_defaults((enum optim_kind)opt_optimizer, &cfg.join.job.optim);
    cfg.join.job.optim.total_steps = (uint64_t)cfg.join.job.train_steps;
    enum status st = net_exchange_create(&cfg, &c->x);
    if (st != ST_OK)
        return st;
    c->segment = net_exchange_gradients(c->x, DTYPE_F32);
    c->gradient = c->segment ? segment_data(c->segment) : c->own_gradient;
    for (int64_t k = 0; k < c->chunks->n_elems; k++)
        c->gradient[k] = gradient_at(opt_task_index, k);
    return ST_OK;
}

/* Pushes the layers from the last to the first, each at its time, then waits for them from the
 * first to the last. layer_ns receives the times of the layers, opt_steps apart; NULL: they are
 * not recorded. */
static enum status one_step(struct client *c, int64_t step, int64_t *layer_ns)
{
    enum status st = ST_OK;
    const struct net_chunk *chunks = c->chunks->chunks;
    int64_t begin = clock_now_ns();
    for (int l = c->n_layers - 1; l >= 0; l--) {
        int64_t at = begin + c->push_ns[l];
        const struct timespec due = {at / 1000000000, at % 1000000000};
        if (c->push_ns[l] > 0)
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        for (int i = c->first_chunk[l]; i < c->first_chunk[l + 1]; i++)
            TRY(net_exchange_push(c->x, i, step, c->gradient + chunks[i].first, 1));
    }
    for (int l = 0; l < c->n_layers; l++) {
        int first = c->first_chunk[l];
        TRY(net_exchange_wait(c->x, first, c->first_chunk[l + 1] - first, step + 1));
        if (layer_ns)
            layer_ns[l * opt_steps] = clock_now_ns() - begin;
    }
done:
    return st;
}

static enum status run_steps(struct client *c, struct window *w)
{
    enum status st = ST_OK;
    struct net_start start;
    TRY(net_exchange_start(c->x, &start));
    int64_t step = start.step;
    if (step != 0) {
        LOG_E("the job is at step %" PRId64 " already", step);
        st = ST_MISMATCH;
        goto done;
    }
    for (; step < opt_warmup; step++)
        TRY(one_step(c, step, NULL));
    w->cpu_ns = -cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    w->others_cpu_ns = -others_cpu_ns(c);
    int64_t before = w->begin_ns = clock_now_ns();
    for (int64_t i = 0; i < opt_steps; i++, step++) {
        TRY(one_step(c, step, c->layer_ns + i));
        w->end_ns = clock_now_ns();
        c->step_ns[i] = w->end_ns - before;
        before = w->end_ns;
    }
    w->others_cpu_ns += others_cpu_ns(c);
    w->cpu_ns += cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
done:
    return st;
}

/* Computes the values of the first elements after the last step; later elements repeat them. */
static void compute_values(float values[PATTERN])
{
    struct optim_config optim;
    float sum[PATTERN], slots[2 * PATTERN] = {0}, old[PATTERN] = {0};
    optim_defaults((enum optim_kind)opt_optimizer, &optim);
    optim.total_steps = (uint64_t)(opt_warmup + opt_steps);
    for (int k = 0; k < PATTERN; k++)
        sum[k] = gradient_at(0, k) * (float)(opt_workers + 1) / 2;
    for (int64_t step = 1; step <= opt_warmup + opt_steps; step++) {
        optim_apply(&optim, (uint64_t)step, PATTERN, sum, 1, old, slots, values);
        memcpy(old, values, sizeof old);
    }
}

/* Compares the parameters with the result of the servers' sums and optimizer, which it computes
 * itself. The gradients of two workers differ by a factor. */
static enum status check(const struct client *c)
{
    struct net_exchange_stats stats;
    float values[PATTERN];
    net_exchange_stats(c->x, &stats);
    const uint64_t pushes = (uint64_t)(opt_warmup + opt_steps) * (uint64_t)c->chunks->n_chunks;
    if (stats.applied != pushes || stats.duplicate || stats.stale || stats.reconnects) {
        LOG_E("of %" PRIu64 " pushes %" PRIu64 " counted, %" PRIu64 " were duplicates, %" PRIu64
              " came too late; %" PRIu64 " reconnects: not a clean run",
              pushes, stats.applied, stats.duplicate, stats.stale, stats.reconnects);
        return ST_MISMATCH;
    }
    compute_values(values);
    for (int64_t k = 0; k < c->chunks->n_elems; k++) {
        float want = values[k % PATTERN];
        /* The servers' additions round in each step. */
        if (!(fabsf(c->params[k] - want) <= 0.02f * fabsf(want))) {
            LOG_E("parameter element %" PRId64 " is %g after the last step, not %g", k,
                  (double)c->params[k], (double)want);
            return ST_MISMATCH;
        }
    }
    return ST_OK;
}

static int compare_ns(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Prints the median and the 99th percentile of the steps' times, which it sorts. */
static void print_times(int64_t *ns)
{
    qsort(ns, (size_t)opt_steps, sizeof *ns, compare_ns);
    printf("\"p50_us\": %.2f, \"p99_us\": %.2f", (double)ns[opt_steps / 2] * 1e-3,
           (double)ns[opt_steps * 99 / 100] * 1e-3);
}

static void print(struct client *c, const struct window *w)
{
    printf("{\"begin_ns\": %" PRId64 ", \"end_ns\": %" PRId64 ", \"steps\": %" PRId64
           ", \"step_bytes\": %" PRId64 ", \"cpu_s\": %.6f, \"others_cpu_s\": %.6f, ",
           w->begin_ns, w->end_ns, opt_steps, 2 * c->chunks->n_elems * 4, (double)w->cpu_ns * 1e-9,
           (double)w->others_cpu_ns * 1e-9);
    print_times(c->step_ns);
    printf(", \"layers\": [");
    for (int l = 0; opt_as && l < c->n_layers; l++) {
        printf("%s{\"layer\": \"%s\", ", l ? ", " : "", deep_mnist_h100[l].name);
        print_times(c->layer_ns + l * opt_steps);
        printf("}");
    }
    printf("]}\n");
    fflush(stdout);
}

static enum status run(struct client *c)
{
    enum status st = ST_OK;
    struct window w = {0};
    TRY(hosts_parse(opt_ps_hosts, "ps_hosts", &c->ps));
    if (c->ps.n == 0 || opt_task_index >= opt_workers || opt_param_bytes % 4 != 0) {
        LOG_E(
            "--ps_hosts is needed, --task_index must be below --workers, --param_bytes a multiple of 4");
        st = ST_INVALID;
        goto done;
    }
    TRY(read_pids(c));
    TRY(make_model(c));
    TRY(make_exchange(c));
    TRY(run_steps(c, &w));
    TRY(check(c));
    TRY(net_exchange_leave(c->x, 1, LEAVE_MS));
    print(c, &w);
done:
    return st;
}

int main(int argc, char **argv)
{
    struct client c = {0};
    int exit_now = 0;
    process_set_up();
    log_init("client", -1, LOG_LEVEL_WARN);
    if (flags_parse(&program, argc, argv, &exit_now) != ST_OK)
        return EXIT_USAGE;
    if (exit_now)
        return 0;
    log_init("client", (int)opt_task_index, (enum log_level)opt_log_level);
    signal(SIGPIPE, SIG_IGN);
    alarm((unsigned)opt_limit_s);
    prctl(PR_SET_TIMERSLACK, 1UL); /* else each wait for a push may last 50 us too long */
    enum status st = security_start(&opt_security);
    if (st == ST_OK)
        st = run(&c);
    net_exchange_destroy(c.x);
    chunks_destroy(c.chunks);
    hosts_free(&c.ps);
    if (!c.values)
        free(c.params);
    free(c.own_gradient);
    segment_unref(c.segment);
    segment_unref(c.values);
    free(c.step_ns);
    free(c.layer_ns);
    return st == ST_OK ? 0 : EXIT_PERMANENT;
}
