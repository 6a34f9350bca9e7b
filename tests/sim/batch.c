/* tests/sim/batch.c - runs many seeds in parallel processes (run.h). Each process reserves the next
 * block of seeds in shared memory. The death of a process is a failure of its seed, and another
 * process continues with its block. */
#include "tests/sim/run.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 100, MAX_JOBS = 64, MAX_FAILED = 64, MAX_SHRUNK = 8, TWICE_EVERY = 20 };

struct failure {
    uint64_t seed;
    char check[32], why[400];
};

struct shared {
    _Atomic uint64_t next; /* first seed that no process has reserved */
    _Atomic int64_t n_runs, n_events, n_ns, n_checks, n_failed;
    _Atomic uint64_t digest; /* sum of the digests of all runs, each mixed with the run's seed */
    _Atomic int64_t faults[SIM_N_FAULTS], marks[SIM_N_MARKS];
    _Atomic int n_listed;
    struct failure failed[MAX_FAILED];
    struct job {
        _Atomic uint64_t seed, last; /* present seed of the process; end of its block */
        _Atomic bool is_busy;        /* the process has seeds left */
    } job[MAX_JOBS];
};

int __real_clock_gettime(clockid_t clock, struct timespec *ts);

int64_t sim_real_ns(void)
{
    struct timespec ts;
    __real_clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void note_failure(struct shared *sh, uint64_t seed, const char *check, const char *why)
{
    sh->n_failed++;
    int i = sh->n_listed++;
    if (i >= MAX_FAILED) {
        sh->n_listed = MAX_FAILED;
        return;
    }
    sh->failed[i].seed = seed;
    snprintf(sh->failed[i].check, sizeof sh->failed[i].check, "%s", check);
    snprintf(sh->failed[i].why, sizeof sh->failed[i].why, "%s", why);
}

void sim_batch_schedule(const struct sim_batch *b, uint64_t seed, struct sim_schedule *s)
{
    sim_schedule_of_seed(seed, s);
    s->option[OPT_mutant] = b->mutant;
    if (b->clip)
        sim_schedule_clip(s);
    if (b->quit)
        sim_schedule_quit(s);
    if (b->regions)
        sim_schedule_regions(s);
    if (b->tables)
        sim_schedule_tables(s);
}

static void run_seed(const struct sim_batch *b, struct shared *sh, uint64_t seed)
{
    struct sim_schedule s;
    struct sim_outcome o, again;
    sim_batch_schedule(b, seed, &s);
    sim_run(&s, false, &o);
    sh->n_runs++;
    sh->n_events += o.events;
    sh->n_ns += o.ns;
    sh->n_checks += o.checks;
    sh->digest += rng_mix(o.digest ^ rng_mix(seed));
    for (int i = 0; i < SIM_N_FAULTS; i++)
        sh->faults[i] += o.faults[i] > 0;
    for (int i = 0; i < SIM_N_MARKS; i++)
        sh->marks[i] += o.marks[i];
    if (o.check[0]) {
        note_failure(sh, seed, o.check, o.why);
    } else if (seed % TWICE_EVERY == 0) {
        sim_run(&s, false, &again);
        if (again.digest != o.digest || again.events != o.events)
            note_failure(sh, seed, "determinism", "two runs of one schedule differ");
    }
}

static void run_share(const struct sim_batch *b, struct shared *sh, int index, int64_t until)
{
    struct job *j = &sh->job[index];
    j->is_busy = true;
    for (;;) {
        if (j->seed >= j->last) {
            j->seed = atomic_fetch_add(&sh->next, BLOCK);
            j->last = j->seed + BLOCK;
        }
        for (; j->seed < j->last; j->seed++) {
            if (j->seed > b->last || (until && sim_real_ns() > until)) {
                j->is_busy = false;
                _exit(0);
            }
            alarm(20);
            run_seed(b, sh, j->seed);
        }
    }
}

static pid_t start_job(const struct sim_batch *b, struct shared *sh, int index, int64_t until)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(3);
        run_share(b, sh, index, until);
    }
    return pid;
}

static void run_jobs(const struct sim_batch *b, struct shared *sh)
{
    pid_t pid[MAX_JOBS];
    int64_t until = b->seconds ? sim_real_ns() + b->seconds * SIM_S : 0;
    int left = b->jobs;
    for (int i = 0; i < b->jobs; i++)
        pid[i] = start_job(b, sh, i, until);
    while (left > 0) {
        int status, i = 0;
        pid_t ended = wait(&status);
        while (i < b->jobs && pid[i] != ended)
            i++;
        if (i == b->jobs)
            continue;
        struct job *j = &sh->job[i];
        if (!j->is_busy) {
            left--;
            continue;
        }
        bool is_hang = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        note_failure(sh, j->seed, is_hang ? "hang" : "crash", "the process ended");
        j->seed++;
        pid[i] = start_job(b, sh, i, until);
    }
}

static void report_failure(struct sim_batch *b, const struct failure *f, int n)
{
    struct sim_schedule s;
    struct sim_outcome o;
    char path[512];
    int n_runs = 0;
    printf("seed %llu fails %s: %s\n", (unsigned long long)f->seed, f->check, f->why);
    if (!b->shrinks || n >= MAX_SHRUNK)
        return;
    sim_batch_schedule(b, f->seed, &s);
    snprintf(s.check, sizeof s.check, "%s", f->check);
    sim_shrink(&s, &n_runs);
    printf("shrunk in %d runs:\n", n_runs);
    sim_schedule_write(&s, stdout);
    if (b->folder) {
        snprintf(path, sizeof path, "%s/%s-%llu.txt", b->folder, f->check,
                 (unsigned long long)f->seed);
        FILE *out = fopen(path, "w");
        if (out) {
            sim_schedule_write(&s, out);
            fclose(out);
        }
    }
    if (strcmp(f->check, "crash") != 0 && strcmp(f->check, "hang") != 0)
        sim_run(&s, true, &o);
    fflush(stdout);
}

static void report_progress(struct sim_batch *b, struct shared *sh)
{
    double took = b->took > 0 ? b->took : 1e-9;
    printf(
        "%lld schedules in %.1f s on %d cores, %.0f per second and core; %.0f events, %.0f checks, %.1f virtual s each; %lld failed; digest %016llx\n",
        (long long)sh->n_runs, took, b->jobs, (double)sh->n_runs / took / b->jobs,
        (double)sh->n_events / (double)(sh->n_runs + !sh->n_runs),
        (double)sh->n_checks / (double)(sh->n_runs + !sh->n_runs),
        (double)sh->n_ns * 1e-9 / (double)(sh->n_runs + !sh->n_runs), (long long)sh->n_failed,
        (unsigned long long)sh->digest);
    printf("schedules by kind of fault:");
    for (int i = 0; i < SIM_N_FAULTS; i++)
        if (sh->faults[i])
            printf(" %s %lld", sim_fault_name[i], (long long)sh->faults[i]);
    printf("\nevents of all schedules:");
    for (int i = 0; i < SIM_N_MARKS; i++)
        printf(" %s %lld", sim_mark_name[i], (long long)sh->marks[i]);
    printf("\n");
    for (int i = 0; i < sh->n_listed && i < MAX_FAILED; i++)
        report_failure(b, &sh->failed[i], i);
}

bool sim_batch_run(struct sim_batch *b)
{
    struct shared *sh =
        mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(sh != MAP_FAILED);
    if (b->jobs > MAX_JOBS)
        b->jobs = MAX_JOBS;
    sh->next = b->first;
    int64_t began = sim_real_ns();
    run_jobs(b, sh);
    b->took = (double)(sim_real_ns() - began) * 1e-9;
    b->n_runs = sh->n_runs;
    b->n_events = sh->n_events;
    b->n_failed = sh->n_failed;
    b->first_failed = sh->failed[0].seed;
    if (!b->is_quiet)
        report_progress(b, sh);
    munmap(sh, sizeof *sh);
    return b->n_failed != 0;
}
