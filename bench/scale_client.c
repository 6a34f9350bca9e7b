/* bench/scale_client.c - many synthetic workers in one process, for bench/scale.
 *
 * For a server each of them is a real worker, with its own exchange client
 * (net/exchange/exchange.h), its own connections, and its own thread. A step sleeps for the
 * simulated compute time, pushes every chunk of a synthetic model, and waits for all new versions.
 * --mode=pull instead pulls every chunk's current version, which measures only transfers from the
 * servers. --primitives connects to no server: it times the loops that a server runs over a chunk,
 * on memory that is not in a cache.
 *
 * When the first worker of this process begins and ends the measured steps, the program reads the
 * CPU times of this process, of the servers (--watch_pids), and of the whole machine, which shows
 * the load of other programs. In sync mode all workers are at most one step apart. Prints one line
 * of JSON. Exit codes: 0, 1 a failure or the deadline, 2 usage. */
#include "base/clock.h"
#include "base/digest.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/process.h"
#include "base/rng.h"
#include "kernels/vector/vector.h"
#include "net/exchange/exchange.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_TENSORS = 65536,
    MAX_WATCHED = 64,
    LEAVE_MS = 20000,
    STACK_BYTES = 256 << 10,
    PRIMITIVE_BYTES = 96 << 20,
    PRIMITIVE_ROUNDS = 5,
};
enum mode { MODE_PUSH, MODE_PULL };

static const char *opt_ps_hosts = "", *opt_watch_pids = "";
static int64_t opt_first = 0, opt_n = 1, opt_workers = 1, opt_model_bytes = 1 << 20;
static int64_t opt_chunk_bytes = CHUNKS_DEFAULT_BYTES, opt_tensors = 1, opt_steps = 20;
static int64_t opt_warm_up = 8, opt_deadline_s = 120, opt_seed = 1;
static double opt_compute_ms = 0, opt_jitter_ms = 0, opt_straggler_ms = 0;
static int opt_mode = MODE_PUSH, opt_primitives = 0, opt_log_level = LOG_LEVEL_WARN;

static const struct flag flags[] = {
    {"ps_hosts", FLAG_STRING, &opt_ps_hosts, 0, 0, "HOST:PORT,...", NULL, "All servers, in order",
     "Cluster:"},
    {"workers", FLAG_INT, &opt_workers, 1, JOB_MAX_WORKERS, NULL, NULL, "Workers of the whole job",
     NULL},
    {"first", FLAG_INT, &opt_first, 0, JOB_MAX_WORKERS - 1, NULL, NULL,
     "Number of this process's first worker", NULL},
    {"n", FLAG_INT, &opt_n, 1, JOB_MAX_WORKERS, NULL, NULL, "Workers in this process", NULL},
    {"model_bytes", FLAG_INT, &opt_model_bytes, 4, 1e12, "BYTES", NULL, "Size of the model",
     "Work:"},
    {"tensors", FLAG_INT, &opt_tensors, 1, MAX_TENSORS, NULL, NULL,
     "Tensors of equal size that the model has", NULL},
    {"chunk_bytes", FLAG_INT, &opt_chunk_bytes, CHUNKS_MIN_BYTES, CHUNKS_MAX_BYTES, "BYTES", NULL,
     "Largest chunk", NULL},
    {"steps", FLAG_INT, &opt_steps, 1, 1e7, NULL, NULL, "Steps that are measured", NULL},
    {"warm_up", FLAG_INT, &opt_warm_up, 1, 1e6, NULL, NULL, "Steps before them", NULL},
    {"mode", FLAG_CHOICE, &opt_mode, 0, 0, NULL, "push|pull",
     "Push gradients and wait for versions, or only ask for versions", NULL},
    {"compute_ms", FLAG_DOUBLE, &opt_compute_ms, 0, 1e6, NULL, NULL, "Simulated compute of a step",
     NULL},
    {"jitter_ms", FLAG_DOUBLE, &opt_jitter_ms, 0, 1e6, NULL, NULL,
     "Mean of an exponentially distributed addition to it", NULL},
    {"straggler_ms", FLAG_DOUBLE, &opt_straggler_ms, 0, 1e6, NULL, NULL,
     "Further compute time of worker 0", NULL},
    {"seed", FLAG_INT, &opt_seed, 0, 1e9, NULL, NULL, "Of the jitter", NULL},
    {"watch_pids", FLAG_STRING, &opt_watch_pids, 0, 0, "PID,...", NULL,
     "Further processes; their CPU time is measured, too", "Measuring:"},
    {"deadline_s", FLAG_INT, &opt_deadline_s, 1, 1e6, NULL, NULL, "Longest time of the program",
     NULL},
    {"primitives", FLAG_BOOL, &opt_primitives, 0, 0, NULL, NULL,
     "Time checksum, sum, copy and update over memory, and nothing else", NULL},
    {"log_level", FLAG_CHOICE, &opt_log_level, 0, 0, NULL, "debug|info|warn|error",
     "What is logged on stderr", NULL},
};
static const struct flags_program program = {
    .name = "bench_scale_client",
    .doc = "Many synthetic workers in one process; bench/scale starts it.",
    .flags = flags,
    .n_flags = sizeof flags / sizeof *flags,
};

/* A point in time: the clock, and the CPU seconds used so far. */
struct mark {
    int64_t ns;
    double own, watched, machine;
};

struct worker {
    struct crowd *crowd;
    int member;
    pthread_t thread;
    int runs;
    struct net_exchange *x;
    float *params, *gradient; /* n_elems each */
    int64_t *step_ns;         /* [opt_steps] */
    int64_t joined_ns, begin_ns, end_ns;
    enum status st;
};

struct crowd {
    struct hosts ps;
    struct chunks *chunks;
    struct worker *workers; /* [opt_n] */
    clockid_t watched[MAX_WATCHED];
    int n_watched;
    struct mark begin, end; /* written by the first worker only */
    pthread_mutex_t lock;   /* guards the fields below */
    pthread_cond_t changed;
    int n_ended, given_up;
};

static double cpu_seconds(clockid_t id)
{
    struct timespec ts = {0, 0};
    clock_gettime(id, &ts); /* fails, and leaves 0, if the process has exited */
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Returns the seconds that the machine's cores were not idle since its start, including stolen
 * time. */
static double machine_seconds(void)
{
    double t[8] = {0};
    FILE *f = fopen("/proc/stat", "r");
    if (!f)
        return 0;
    int n = fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3], &t[4],
                   &t[5], &t[6], &t[7]);
    fclose(f);
    double busy = t[0] + t[1] + t[2] + t[5] + t[6] + t[7]; /* all but idle and waiting for disks */
    return n == 8 ? busy / (double)sysconf(_SC_CLK_TCK) : 0;
}

static struct mark take_mark(const struct crowd *c)
{
    struct mark m = {clock_now_ns(), cpu_seconds(CLOCK_PROCESS_CPUTIME_ID), 0, machine_seconds()};
    for (int i = 0; i < c->n_watched; i++)
        m.watched += cpu_seconds(c->watched[i]);
    return m;
}

/* Waits for the simulated compute time, or until the crowd stops. */
static void simulate_compute(struct worker *w, int64_t step)
{
    double ms = opt_compute_ms + (w->member == 0 ? opt_straggler_ms : 0);
    if (opt_jitter_ms > 0) {
        uint64_t key = rng_key((uint64_t)opt_seed, RNG_TEST, (uint64_t)w->member);
        ms -= opt_jitter_ms * log(1.0 - (double)rng_uniform(key, (uint64_t)step));
    }
    if (ms <= 0)
        return;
    int64_t deadline = clock_now_ns() + (int64_t)(ms * 1e6);
    pthread_mutex_lock(&w->crowd->lock);
    while (!w->crowd->given_up &&
           clock_cond_wait(&w->crowd->changed, &w->crowd->lock, deadline) == 0)
        ;
    pthread_mutex_unlock(&w->crowd->lock);
}

static enum status exchange_session_step(struct worker *w, int64_t step)
{
    enum status st = ST_OK;
    const struct chunks *chunks = w->crowd->chunks;
    for (int i = 0; i < chunks->n_chunks; i++) {
        if (opt_mode == MODE_PUSH)
            TRY(net_exchange_push(w->x, i, step, w->gradient + chunks->chunks[i].first, 1));
        else
            TRY(net_exchange_pull(w->x, i, 0));
    }
    TRY(net_exchange_wait(w->x, 0, chunks->n_chunks, opt_mode == MODE_PUSH ? step + 1 : 0));
done:
    return st;
}

static enum status run_steps(struct worker *w)
{
    enum status st = ST_OK;
    struct net_start start;
    int marks = w == w->crowd->workers;
    TRY(net_exchange_start(w->x, &start));
    int64_t step = start.step;
    w->joined_ns = clock_now_ns();
    for (int64_t i = 0; i < opt_warm_up; i++, step++)
        TRY(exchange_session_step(w, step));
    if (marks)
        w->crowd->begin = take_mark(w->crowd);
    int64_t then = w->begin_ns = clock_now_ns();
    for (int64_t i = 0; i < opt_steps; i++, step++) {
        simulate_compute(w, step);
        TRY(exchange_session_step(w, step));
        int64_t now = clock_now_ns();
        w->step_ns[i] = now - then;
        then = now;
    }
    w->end_ns = then;
    if (marks)
        w->crowd->end = take_mark(w->crowd);
    TRY(net_exchange_leave(w->x, 1, LEAVE_MS));
done:
    return st;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    w->st = run_steps(w);
    pthread_mutex_lock(&w->crowd->lock);
    w->crowd->n_ended++;
    if (w->st != ST_OK)
        w->crowd->given_up = 1; /* otherwise all other workers would wait for it */
    pthread_cond_broadcast(&w->crowd->changed);
    pthread_mutex_unlock(&w->crowd->lock);
    return NULL;
}

static enum status make_chunks(struct chunks **out)
{
    enum status st = ST_NOMEM;
    char(*names)[16] = calloc((size_t)opt_tensors, sizeof *names);
    struct net_param *params = calloc((size_t)opt_tensors, sizeof *params);
    int64_t n_elems = opt_model_bytes / (int64_t)sizeof(float) / opt_tensors;
    for (int i = 0; names && params && i < opt_tensors; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        params[i] = (struct net_param){.name = names[i], .shape = {.n_dims = 1}};
        params[i].shape.dim[0] = n_elems > 0 ? n_elems : 1;
    }
    if (names && params)
        st = chunks_create(params, (int)opt_tensors, opt_chunk_bytes, out);
    free(names);
    free(params);
    return st;
}

static enum status worker_start(struct crowd *c, struct worker *w, int member)
{
    enum status st = ST_OK;
    pthread_attr_t attr;
    size_t n = (size_t)c->chunks->n_elems;
    w->crowd = c;
    w->member = member;
    w->params = calloc(n, sizeof *w->params);
    w->gradient = malloc(n * sizeof *w->gradient);
    w->step_ns = calloc((size_t)opt_steps, sizeof *w->step_ns);
    if (!w->params || !w->gradient || !w->step_ns) {
        LOG_E("no memory for worker %d of this process; lower --n or --model_bytes", member);
        return ST_NOMEM;
    }
    for (size_t i = 0; i < n; i++)
        w->gradient[i] = (float)(i % 1024) * 1e-6f;
    struct net_exchange_config cfg = {.ps_hosts = &c->ps, .params = w->params};
    cfg.join.member = member;
    cfg.join.incarnation = rng_mix((uint64_t)clock_now_ns() + (uint64_t)member) | 1;
    cfg.join.chunks = c->chunks;
    cfg.join.job.n_workers = (int)opt_workers;
    cfg.join.job.train_steps = opt_warm_up + opt_steps;
    optim_defaults(OPTIM_SGD, &cfg.join.job.optim);
    TRY(net_exchange_create(&cfg, &w->x));
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int err = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_attr_destroy(&attr);
    if (err) {
        LOG_E("thread of worker %d: %s; raise the limit on processes (ulimit -u)", member,
              strerror(err));
        st = ST_INTERNAL;
    }
    w->runs = !err;
done:
    return st;
}

/* Waits for all running workers, until the deadline. */
static enum status wait_for_all(struct crowd *c, int n_running)
{
    int64_t deadline = clock_deadline_ns(opt_deadline_s * 1000);
    pthread_mutex_lock(&c->lock);
    while (c->n_ended < n_running && !c->given_up &&
           clock_cond_wait(&c->changed, &c->lock, deadline) == 0)
        ;
    int n_ended = c->n_ended, failed = c->given_up;
    c->given_up = n_ended < n_running || failed;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (n_ended < n_running && !failed)
        LOG_E("%d of %d workers had not ended after --deadline_s=%" PRId64, n_running - n_ended,
              n_running, opt_deadline_s);
    return n_ended < n_running || failed ? ST_DEADLINE : ST_OK;
}

static int64_t memory_bytes(const char *key)
{
    char line[256];
    long long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            kb = strtoll(line + strlen(key), NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

static void print_result(const struct crowd *c, int64_t start_ns)
{
    int64_t begin = INT64_MAX, end = 0, joined = 0;
    struct net_exchange_stats sum = {0}, one;
    for (int i = 0; i < opt_n; i++) {
        const struct worker *w = &c->workers[i];
        begin = w->begin_ns < begin ? w->begin_ns : begin;
        end = w->end_ns > end ? w->end_ns : end;
        joined = w->joined_ns > joined ? w->joined_ns : joined;
        net_exchange_stats(w->x, &one);
        sum.reconnects += one.reconnects;
        sum.duplicate += one.duplicate;
    }
    printf("{\"workers\":%" PRId64 ",\"steps\":%" PRId64 ",\"chunks\":%d,\"model_bytes\":%" PRId64,
           opt_n, opt_steps, c->chunks->n_chunks, c->chunks->n_elems * (int64_t)sizeof(float));
    printf(",\"begin_ns\":%" PRId64 ",\"end_ns\":%" PRId64 ",\"join_s\":%.6f", begin, end,
           (double)(joined - start_ns) * 1e-9);
    printf(",\"cpu_s\":%.6f,\"watched_cpu_s\":%.6f", c->end.own - c->begin.own,
           c->end.watched - c->begin.watched);
    printf(",\"machine_cpu_s\":%.6f,\"window_s\":%.6f", c->end.machine - c->begin.machine,
           (double)(c->end.ns - c->begin.ns) * 1e-9);
    printf(",\"reconnects\":%" PRIu64 ",\"duplicates\":%" PRIu64, sum.reconnects, sum.duplicate);
    printf(",\"peak_kb\":%" PRId64 ",\"threads\":%" PRId64 ",\"step_us\":[", memory_bytes("VmHWM:"),
           memory_bytes("Threads:"));
    for (int i = 0; i < opt_n; i++)
        for (int64_t s = 0; s < opt_steps; s++)
            printf("%s%" PRId64, i || s ? "," : "", c->workers[i].step_ns[s] / 1000);
    printf("]}\n");
}

static enum status parse_pids(struct crowd *c)
{
    for (const char *at = opt_watch_pids; *at;) {
        char *end;
        long pid = strtol(at, &end, 10);
        clockid_t id;
        if (end == at || (*end && *end != ',') || c->n_watched == MAX_WATCHED ||
            clock_getcpuclockid((pid_t)pid, &id) != 0) {
            LOG_E("--watch_pids: '%.60s' does not name running processes, at most %d", at,
                  MAX_WATCHED);
            return ST_INVALID;
        }
        c->watched[c->n_watched++] = id;
        at = *end ? end + 1 : end;
    }
    return ST_OK;
}

static enum status run_crowd(void)
{
    enum status st = ST_OK;
    struct crowd c = {.lock = PTHREAD_MUTEX_INITIALIZER};
    int64_t start_ns = clock_now_ns();
    int n_running = 0;
    clock_cond_init(&c.changed);
    TRY(hosts_parse(opt_ps_hosts, "ps_hosts", &c.ps));
    TRY(parse_pids(&c));
    TRY(make_chunks(&c.chunks));
    c.workers = calloc((size_t)opt_n, sizeof *c.workers);
    TRY(c.workers ? ST_OK : ST_NOMEM);
    for (int i = 0; i < opt_n && st == ST_OK; i++) {
        st = worker_start(&c, &c.workers[i], (int)opt_first + i);
        n_running += c.workers[i].runs;
    }
    if (st == ST_OK)
        st = wait_for_all(&c, n_running);
    for (int i = 0; i < opt_n; i++) {
        if (st != ST_OK && c.workers[i].x)
            net_exchange_cancel(c.workers[i].x);
    }
    for (int i = 0; i < opt_n; i++)
        if (c.workers[i].runs)
            pthread_join(c.workers[i].thread, NULL);
    if (st == ST_OK)
        print_result(&c, start_ns);
done:
    for (int i = 0; c.workers && i < opt_n; i++) {
        net_exchange_destroy(c.workers[i].x);
        free(c.workers[i].params);
        free(c.workers[i].gradient);
        free(c.workers[i].step_ns);
    }
    free(c.workers);
    chunks_destroy(c.chunks);
    hosts_free(&c.ps);
    return st;
}

/* Runs the loops of a server over each chunk of a block larger than the caches. */
static void run_loop(int which, float *a, float *b, size_t n)
{
    struct optim_config sgd;
    optim_defaults(OPTIM_SGD, &sgd);
    if (which == 0)
        a[0] += (float)digest_crc32c(0, b, n * sizeof *b) * 1e-30f;
    else if (which == 1)
        vector_add_scaled(a, b, 0.5f, n);
    else if (which == 2)
        vector_copy(a, b, n);
    else
        optim_apply(&sgd, 1, n, b, 0.5f, a, NULL, a);
}

static enum status run_primitives(void)
{
    static const char *const names[] = {"crc", "add", "copy", "update"};
    size_t n = (size_t)opt_chunk_bytes / sizeof(float), all = PRIMITIVE_BYTES / sizeof(float);
    float *a = calloc(all, sizeof *a), *b = calloc(all, sizeof *b);
    enum status st = a && b ? ST_OK : ST_NOMEM;
    if (st == ST_OK) {
        /* allocates real pages instead of the shared page of zeros */
        memset(a, 0, PRIMITIVE_BYTES);
        memset(b, 0, PRIMITIVE_BYTES);
    }
    for (int which = 0; which < 4 && st == ST_OK; which++) {
        double best = INFINITY;
        for (int round = 0; round < PRIMITIVE_ROUNDS; round++) {
            double start = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
            for (size_t at = 0; at + n <= all; at += n)
                run_loop(which, a + at, b + at, n);
            double s = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
            best = s < best ? s : best;
        }
        printf("%s\"%s\":%.6e", which ? "," : "{", names[which],
               best / (double)(all / n * n * sizeof(float)));
    }
    if (st == ST_OK)
        printf("}\n");
    free(a);
    free(b);
    return st;
}

int main(int argc, char **argv)
{
    int exit_now = 0;
    process_set_up();
    log_init("scale", -1, LOG_LEVEL_WARN);
    if (flags_parse(&program, argc, argv, &exit_now) != ST_OK)
        return EXIT_USAGE;
    if (exit_now)
        return 0;
    log_init("scale", (int)opt_first, (enum log_level)opt_log_level);
    if (!opt_primitives && (!opt_ps_hosts[0] || opt_first + opt_n > opt_workers)) {
        LOG_E("--ps_hosts is missing, or --first + --n is above --workers");
        return EXIT_USAGE;
    }
    enum status st = opt_primitives ? run_primitives() : run_crowd();
    if (st != ST_OK)
        LOG_E("given up: %s", status_text(st));
    return st == ST_OK ? 0 : 1;
}
