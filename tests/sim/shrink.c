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
        sim_run(s, false, shared);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    *out = *shared;
    munmap(shared, sizeof *shared);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    bool is_hang = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    *out = (struct sim_outcome){.events = 0};
    snprintf(out->check, sizeof out->check, "%s", is_hang ? "hang" : "crash");
    snprintf(out->why, sizeof out->why, "the process ended with status %d", status);
}

struct shrink {
    struct sim_schedule *s;
    int n_runs;
};

/* Replaces the schedule by the other one if that also fails the same check. Returns true in that
 * case. */
static bool keep_if(struct shrink *h, const struct sim_schedule *other)
{
    struct sim_outcome o;
    if (h->n_runs >= MAX_RUNS)
        return false;
    h->n_runs++;
    sim_run_apart(other, &o);
    if (strcmp(o.check, h->s->check) != 0)
        return false;
    *h->s = *other;
    return true;
}

static bool drop_faults(struct shrink *h)
{
    bool is_better = false;
    for (int n = h->s->n_faults; n >= 1; n /= 2)
        for (int i = 0; i + n <= h->s->n_faults;) {
            struct sim_schedule t = *h->s;
            memmove(&t.fault[i], &t.fault[i + n], (size_t)(t.n_faults - i - n) * sizeof *t.fault);
            t.n_faults -= n;
            if (keep_if(h, &t))
                is_better = true;
            else
                i += n;
        }
    return is_better;
}

static bool has_apart(const struct sim_schedule *s)
{
    bool has = false;
    for (int i = 0; i < s->n_faults; i++)
        has |= s->fault[i].kind == FAULT_apart;
    return has;
}

static bool lower_options(struct shrink *h)
{
    bool is_better = false;
    for (int i = 0; i < SIM_N_OPTIONS; i++) {
        int64_t first = sim_option_default[i];
        if (i == OPT_mutant || i == OPT_coordinator || h->s->option[i] == first)
            continue;
        struct sim_schedule t = *h->s;
        t.option[i] = first;
        if (i == OPT_workers && has_apart(&t)) /* a job of one worker would wait for ever */
            t.option[i] = 2;
        if (keep_if(h, &t)) {
            is_better = true;
            continue;
        }
        t = *h->s;
        t.option[i] = (t.option[i] + first) / 2;
        if (t.option[i] != h->s->option[i] && keep_if(h, &t))
            is_better = true;
    }
    return is_better;
}

static bool simplify_faults(struct shrink *h)
{
    bool is_better = false;
    for (int i = 0; i < h->s->n_faults; i++) {
        struct sim_schedule t = *h->s;
        if (t.fault[i].ms > 1) {
            t.fault[i].ms /= 2;
            is_better |= keep_if(h, &t);
        }
        t = *h->s;
        if (t.fault[i].after_us > 0) {
            t.fault[i].after_us = t.fault[i].after_us > 1000 ? t.fault[i].after_us / 2 : 0;
            is_better |= keep_if(h, &t);
        }
        t = *h->s;
        if (t.fault[i].nth > 1) {
            t.fault[i].nth /= 2;
            is_better |= keep_if(h, &t);
        }
    }
    return is_better;
}

/* Tries small seeds: with other random numbers, fewer faults may be enough for the failure. */
static bool lower_seed(struct shrink *h)
{
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct sim_schedule t = *h->s;
        t.seed = seed;
        if (seed < h->s->seed && keep_if(h, &t))
            return true;
    }
    return false;
}

void sim_shrink(struct sim_schedule *s, int *n_runs)
{
    struct shrink h = {s, 0};
    bool is_better = true;
    while (is_better && h.n_runs < MAX_RUNS) {
        is_better = drop_faults(&h);
        is_better |= lower_options(&h);
        is_better |= simplify_faults(&h);
        if (!is_better)
            is_better = lower_seed(&h);
    }
    *n_runs = h.n_runs;
}
