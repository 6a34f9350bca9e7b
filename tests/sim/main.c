/* tests/sim/main.c - the simulator's program.
 *   sim [--seeds=A-B] [--jobs=N] [--seconds=S] [--mutant=K] [MODE] [--no-shrink] [--folder=DIR]
 *   sim --seed=N [MODE]    prints the story of one seed
 *   sim FILE...            runs schedules from files, with their stories
 *   sim --test=DIR [--seconds=S]   the test of ctest: the schedules of DIR, mutant.c, and new
 *                          seeds, which begin at WEIR_SIM_SEED or at a number from the commit
 * MODE: --clip, --quit, --regions, --tables. Exit status 1: a check failed. */
#include "tests/sim/run.h"
#include <dirent.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MUTANTS = 6, MUTANT_RUNS = 20000 };

static int run_file(const char *path, bool has_story)
{
    struct sim_schedule s;
    struct sim_outcome o;
    if (sim_schedule_read(path, &s) != ST_OK)
        return 1;
    if (has_story)
        sim_run(&s, true, &o);
    else
        sim_run_apart(&s, &o);
    if (o.check[0])
        printf("%s fails %s: %s\n", path, o.check, o.why);
    return o.check[0] != 0;
}

static int run_corpus(const char *folder)
{
    struct dirent **list;
    char path[1024];
    int failed = 0, n_files = 0, n = scandir(folder, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (strstr(list[i]->d_name, ".txt")) {
            snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
            failed += run_file(path, false);
            n_files++;
        }
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    printf("corpus: %d schedules, %d failed\n", n_files, failed);
    return failed + (n < 0);
}

/* Checks that each fault of mutant.c is found. */
__attribute__((unused)) static int run_mutants(int jobs)
{
    int missed = 0;
    for (int i = 1; i <= MUTANTS; i++) {
        struct sim_batch b = {.first = 1, .last = 300, .jobs = jobs, .mutant = i, .is_quiet = true};
        while (!sim_batch_run(&b) && b.last < MUTANT_RUNS) {
            b.first = b.last + 1;
            b.last = b.last * 4;
        }
        printf("mutant %d: %s\n", i, b.n_failed ? "found" : "NOT FOUND");
        missed += !b.n_failed;
    }
    return missed;
}

/* Chooses the first seed, by WEIR_SIM_SEED or the commit, and the time for the batch. */
static void choose_seeds(struct sim_batch *b)
{
    const char *text = getenv("WEIR_SIM_SEED");
    b->first = text ? strtoull(text, NULL, 10) : (uint64_t)WEIR_SIM_BASE;
    b->last = b->first + (uint64_t)1000000000;
    b->seconds = b->seconds ? b->seconds : 20;
}

static int test(const char *folder, struct sim_batch *b)
{
    int failed = run_corpus(folder);
#ifdef __SANITIZE_ADDRESS__
    printf("mutants: skipped, since only the build without a sanitizer runs them\n");
#else
    failed += run_mutants(b->jobs);
#endif
    choose_seeds(b);
    printf("seeds from %llu on:\n", (unsigned long long)b->first);
    struct sim_batch clipped = *b, quit = *b, regions = *b, tables = *b;
    clipped.clip = quit.quit = regions.regions = tables.tables = true;
    clipped.seconds = quit.seconds = b->seconds / 10 + 1;
    regions.seconds = tables.seconds = (b->seconds + 4) / 5;
    int apart = 2 * (clipped.seconds + regions.seconds);
    b->seconds -= b->seconds > apart ? apart : 0;
    failed += sim_batch_run(b);
    printf("the same seeds with --clip:\n");
    failed += sim_batch_run(&clipped);
    printf("the same seeds with --quit:\n");
    failed += sim_batch_run(&quit);
    printf("the same seeds with --regions:\n");
    failed += sim_batch_run(&regions);
    printf("the same seeds with --tables:\n");
    return failed + sim_batch_run(&tables);
}

static int story_of(uint64_t seed, const struct sim_batch *b)
{
    struct sim_schedule s;
    struct sim_outcome o;
    sim_batch_schedule(b, seed, &s);
    sim_schedule_write(&s, stdout);
    sim_run(&s, true, &o);
    printf("%lld events, %.3f virtual s, digest %016llx: %s %s\n", (long long)o.events,
           (double)o.ns * 1e-9, (unsigned long long)o.digest, o.check[0] ? o.check : "passes",
           o.why);
    return o.check[0] != 0;
}

int main(int argc, char **argv)
{
    struct sim_batch b = {.first = 1, .last = 10000, .shrinks = true};
    const char *folder = NULL;
    unsigned long long first, last, seed = 0;
    bool has_seed = false;
    int failed = 0, n_files = 0;
    mallopt(M_MMAP_THRESHOLD, 64 << 20); /* blocks of files are often allocated */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    b.jobs = (int)sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (sscanf(a, "--seeds=%llu-%llu", &first, &last) == 2) {
            b.first = first;
            b.last = last;
        } else if (sscanf(a, "--seed=%llu", &seed) == 1) {
            has_seed = true;
        } else if (!strncmp(a, "--test=", 7)) {
            folder = a + 7;
        } else if (!strncmp(a, "--folder=", 9)) {
            b.folder = argv[i] + 9;
        } else if (!strcmp(a, "--clip")) {
            b.clip = true;
        } else if (!strcmp(a, "--quit")) {
            b.quit = true;
        } else if (!strcmp(a, "--regions")) {
            b.regions = true;
        } else if (!strcmp(a, "--tables")) {
            b.tables = true;
        } else if (!strcmp(a, "--no-shrink")) {
            b.shrinks = false;
        } else if (a[0] != '-') {
            failed += run_file(a, true);
            n_files++;
        } else if (sscanf(a, "--jobs=%d", &b.jobs) != 1 &&
                   sscanf(a, "--seconds=%d", &b.seconds) != 1 &&
                   sscanf(a, "--mutant=%d", &b.mutant) != 1) {
            fprintf(stderr, "unknown argument %s: see the head of tests/sim/main.c\n", a);
            return 2;
        }
    }
    if (n_files)
        return failed != 0;
    if (has_seed)
        return story_of(seed, &b);
    return (folder ? test(folder, &b) : sim_batch_run(&b)) != 0;
}
