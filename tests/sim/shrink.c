/* tests/sim/shrink.c - shortens a schedule (run.h): removes faults and lowers numbers as long as
 * the same check fails. Each attempt runs the schedule, so the result is valid. */
#include "tests/sim/run.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HANG_S = 20, MAX_RUNS = 4000 };

void sim_run_apart(const struct sim_schedule *s, struct sim_outcome *out)
{
    struct sim_outcome *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(HANG_S);
        if (!freopen("/dev/null", "w", stderr))
            _exit(3);
        sim_run(s, 0, shared);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    *out = *shared;
    munmap(shared, sizeof *shared);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    int hang = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    *out = (struct sim_outcome){.events = 0};
    snprintf(out->check, sizeof out->check, "%s", hang ? "hang" : "crash");
    snprintf(out->why, sizeof out->why, "the process ended with status %d", status);
}

struct shrink {
    struct sim_schedule *s;
    int n_runs;
};

/* Replaces the schedule by the other if that fails the same check. Returns nonzero if so. */
static int keep_if(struct shrink *h, const struct sim_schedule *other)
{
    struct sim_outcome o;
    if (h->n_runs >= MAX_RUNS)
        return 0;
    h->n_runs++;
    sim_run_apart(other, &o);
    if (strcmp(o.check, h->s->check) != 0)
        return 0;
    *h->s = *other;
    return 1;
}

static int drop_faults(struct shrink *h)
{
    int better = 0;
    for (int n = h->s->n_faults; n >= 1; n /= 2)
        for (int i = 0; i + n <= h->s->n_faults;) {
            struct sim_schedule t = *h->s;
            memmove(&t.fault[i], &t.fault[i + n], (size_t)(t.n_faults - i - n) * sizeof *t.fault);
            t.n_faults -= n;
            if (keep_if(h, &t))
                better = 1;
            else
                i += n;
        }
    return better;
}

static int has_apart(const struct sim_schedule *s)
{
    int n = 0;
    for (int i = 0; i < s->n_faults; i++)
        n += s->fault[i].kind == FAULT_apart;
    return n;
}

static int lower_options(struct shrink *h)
{
    int better = 0;
    for (int i = 0; i < SIM_N_OPTIONS; i++) {
        int64_t first = sim_option_default[i];
        if (i == OPT_mutant || i == OPT_coordinator || h->s->option[i] == first)
            continue;
        struct sim_schedule t = *h->s;
        t.option[i] = first;
        if (i == OPT_workers && has_apart(&t)) /* a job of one worker would wait for ever */
            t.option[i] = 2;
        if (keep_if(h, &t)) {
            better = 1;
            continue;
        }
        t = *h->s;
        t.option[i] = (t.option[i] + first) / 2;
        if (t.option[i] != h->s->option[i] && keep_if(h, &t))
            better = 1;
    }
    return better;
}

static int simplify_faults(struct shrink *h)
{
    int better = 0;
    for (int i = 0; i < h->s->n_faults; i++) {
        struct sim_schedule t = *h->s;
        if (t.fault[i].ms > 1) {
            t.fault[i].ms /= 2;
            better |= keep_if(h, &t);
        }
        t = *h->s;
        if (t.fault[i].after_us > 0) {
            t.fault[i].after_us = t.fault[i].after_us > 1000 ? t.fault[i].after_us / 2 : 0;
            better |= keep_if(h, &t);
        }
        t = *h->s;
        if (t.fault[i].nth > 1) {
            t.fault[i].nth /= 2;
            better |= keep_if(h, &t);
        }
    }
    return better;
}

/* Tries small seeds: other draws may fail with fewer faults. */
static int lower_seed(struct shrink *h)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct sim_schedule t = *h->s;
        t.seed = seed;
        if (seed < h->s->seed && keep_if(h, &t))
            return 1;
    }
    return 0;
}

void sim_shrink(struct sim_schedule *s, int *n_runs)
{
    struct shrink h = {s, 0};
    int better = 1;
    while (better && h.n_runs < MAX_RUNS) {
        better = drop_faults(&h);
        better |= lower_options(&h);
        better |= simplify_faults(&h);
        if (!better)
            better = lower_seed(&h);
    }
    *n_runs = h.n_runs;
}
