/* tests/sim/schedule.c - see schedule.h. This is swarm testing: each schedule has its own options,
 * and its own few kinds of faults with their own weights, so that no two kinds always occur
 * together. */
#include "tests/sim/schedule.h"
#include "tests/sim/scene.h"
#include "tests/sim/sim.h"
#include <stdlib.h>
#include <string.h>

const char *const sim_option_name[] = {
#define X(name, first, low, high) #name,
    SIM_OPTIONS(X)
#undef X
};
const char *const sim_fault_name[] = {
#define X(name, two, lasts) #name,
    SIM_FAULTS(X)
#undef X
};
const char *const sim_mark_name[] = {
#define X(name) #name,
    SIM_MARKS(X)
#undef X
};
const int64_t sim_option_default[] = {
#define X(name, first, low, high) first,
    SIM_OPTIONS(X)
#undef X
};
static const int64_t option_low[] = {
#define X(name, first, low, high) low,
    SIM_OPTIONS(X)
#undef X
};
const int64_t sim_option_high[] = {
#define X(name, first, low, high) high,
    SIM_OPTIONS(X)
#undef X
};
static const int fault_two[] = {
#define X(name, two, lasts) two,
    SIM_FAULTS(X)
#undef X
};

static void draw_options(struct sim_random *r, struct sim_schedule *s)
{
    for (int i = 0; i <= OPT_mutant; i++) {
        int64_t wide = sim_option_high[i] - option_low[i];
        s->option[i] = wide > 100 ? sim_log(r, option_low[i], sim_option_high[i])
                                  : sim_between(r, option_low[i], sim_option_high[i]);
    }
    int64_t *o = s->option;
    if (sim_chance(r, 60))
        o[OPT_mode] = 0;
    if (sim_chance(r, 40))
        o[OPT_optimizer] = 0;
    if (o[OPT_min_workers] > o[OPT_workers])
        o[OPT_min_workers] = 0;
    o[OPT_mutant] = 0;
    o[OPT_coordinator] = sim_chance(r, 97);
    o[OPT_calm_ms] = 1000 + sim_below(r, sim_chance(r, 40) ? 120000 : 20000);
    if (sim_chance(r, 70))
        o[OPT_tail] = 0;
    o[OPT_no_memory] = sim_chance(r, 15) ? sim_between(r, 1, 70) : 0;
}

/* Returns nonzero if the fault may strike the node. Without ps 0's decisions no server may die,
 * since its chunks have no other copy. */
static int may(const struct sim_schedule *s, enum sim_fault_kind kind, int node)
{
    int core = (int)s->option[OPT_coordinator], server = sim_is_server(node);
    switch (kind) {
    case FAULT_kill:
    case FAULT_power:
        return !server || core;
    case FAULT_slow:
        return !server;
    case FAULT_drain: /* a job with min_workers could lack workers */
        return core && (server || s->option[OPT_min_workers] == 0);
    case FAULT_term:
    case FAULT_join:
    case FAULT_checkpoint:
    case FAULT_disk_hang:
    case FAULT_disk_full:
        return core;
    case FAULT_damaged:
        return core && server && s->option[OPT_folder];
    case FAULT_begin_fails:
        return core && server;
    case FAULT_disk_stuck: /* ps 0 only waits for this server, and names it */
        return core && server && node != 0;
    case FAULT_apart: /* the other workers, if there are any, continue without this worker */
        return core && !server && s->option[OPT_workers] > 1 && s->option[OPT_min_workers] == 0;
    case FAULT_late:
    case FAULT_lose_folder:
        return core && s->option[OPT_folder] && node == 0;
    /* ps 0 has to decide without the server; the loss of ps 0 itself: docs/guide/failures.md */
    case FAULT_gone:
        return core && node != 0;
    default:
        return 1;
    }
}

static int draw_node(struct sim_random *r, const struct sim_schedule *s)
{
    int n_servers = (int)s->option[OPT_servers], n_workers = (int)s->option[OPT_workers];
    int i = (int)sim_below(r, n_servers + n_workers);
    return i < n_servers ? i : SIM_SERVERS + i - n_servers;
}

/* Returns about the duration of the job without faults. */
static int64_t job_us(const struct sim_schedule *s)
{
    return s->option[OPT_steps] * s->option[OPT_compute_ms] * 2000;
}

/* Returns how often the mark occurs in many runs. */
static int most_marks(enum sim_mark mark)
{
    switch (mark) {
    case MARK_push:
    case MARK_version:
    case MARK_disk:
        return 40;
    case MARK_join:
    case MARK_leave:
        return 10;
    default:
        return 4;
    }
}

static void draw_fault(struct sim_random *r, const struct sim_schedule *s, const int *weight,
                       struct sim_fault *f)
{
    int total = 0;
    for (int i = 0; i < FAULT_quit; i++)
        total += weight[i];
    int64_t at = sim_below(r, total), span = s->option[OPT_calm_ms] * 1000;
    int kind = 0;
    while (at >= weight[kind])
        at -= weight[kind++];
    *f = (struct sim_fault){.kind = (enum sim_fault_kind)kind, .nth = 1};
    f->node = draw_node(r, s);
    f->other = draw_node(r, s);
    if (kind == FAULT_late)
        f->node = 0;
    if (kind == FAULT_apart && s->option[OPT_servers] > 1)
        f->other = (int)sim_between(r, 1, (int)s->option[OPT_servers] - 1);
    f->mark = sim_chance(r, 50) ? MARK_start : (enum sim_mark)sim_below(r, SIM_N_MARKS);
    if (f->mark == MARK_start) {
        f->after_us = sim_below(r, sim_chance(r, 30) ? span : 1000000 + job_us(s));
    } else {
        f->nth = (int)sim_between(r, 1, sim_chance(r, 50) ? 3 : most_marks(f->mark));
        f->after_us = sim_chance(r, 30) ? 0 : sim_log(r, 0, 1000000);
    }
    f->ms = sim_chance(r, 20) ? sim_between(r, 10000, 60000) : sim_log(r, 1, 3000);
}

void sim_schedule_of_seed(uint64_t seed, struct sim_schedule *s)
{
    struct sim_random r = sim_random_of(seed, STREAM_OPTIONS, 0);
    int weight[SIM_N_FAULTS], total = 0;
    *s = (struct sim_schedule){.seed = seed};
    draw_options(&r, s);
    r = sim_random_of(seed, STREAM_FAULTS, 0);
    int on = (int)sim_between(&r, 10, 90);
    for (int i = 0; i < FAULT_quit; i++)
        total += weight[i] = sim_chance(&r, on) ? (int)sim_between(&r, 1, 100) : 0;
    int kind = (int)sim_below(&r, 100);
    int most = kind < 8 ? 0 : kind < 80 ? 7 : kind < 97 ? 16 : SIM_MAX_FAULTS;
    int n = total ? (int)sim_between(&r, most > 0, most) : 0, n_apart = 0;
    for (int i = 0; i < n && s->n_faults < SIM_MAX_FAULTS; i++) {
        struct sim_fault f;
        draw_fault(&r, s, weight, &f);
        int fits = may(s, f.kind, f.node) && (!fault_two[f.kind] || f.node != f.other);
        if (f.kind == FAULT_apart)
            fits &= n_apart++ == 0 && sim_is_server(f.other) && f.other != 0;
        /* strikes shortly after the fault before it */
        if (fits && s->n_faults > 0 && sim_chance(&r, 40)) {
            const struct sim_fault *before = &s->fault[s->n_faults - 1];
            f.mark = before->mark;
            f.nth = before->nth;
            f.after_us = before->after_us + sim_log(&r, 1, 100000);
        }
        if (fits) {
            s->fault[s->n_faults++] = f;
            sim_scene_draw_beside(&r, s);
        }
    }
    r = sim_random_of(seed, STREAM_FAULTS, 1);
    sim_scene_draw(&r, s);
    r = sim_random_of(seed, STREAM_OPTIONS, 2);
    s->option[OPT_lacks] = sim_chance(&r, 50);
    s->option[OPT_threads] = sim_chance(&r, 60);
}

static void node_text(int node, char out[24])
{
    snprintf(out, 24, "%s%d", sim_is_server(node) ? "ps" : "worker",
             sim_is_server(node) ? node : node - SIM_SERVERS);
}

static int node_of(const char *text)
{
    int n;
    if (sscanf(text, "ps%d", &n) == 1)
        return n;
    return sscanf(text, "worker%d", &n) == 1 ? SIM_SERVERS + n : -1;
}

void sim_fault_text(const struct sim_fault *f, char *out, int room)
{
    char node[24], other[24];
    node_text(f->node, node);
    node_text(f->other, other);
    snprintf(out, (size_t)room, "fault %s %s %s after %s %d us %lld ms %lld",
             sim_fault_name[f->kind], node, other, sim_mark_name[f->mark], f->nth,
             (long long)f->after_us, (long long)f->ms);
}

void sim_schedule_write(const struct sim_schedule *s, FILE *f)
{
    char text[160];
    fprintf(f, "check %s\nseed %llu\n", s->check[0] ? s->check : "none",
            (unsigned long long)s->seed);
    for (int i = 0; i < SIM_N_OPTIONS; i++)
        if (s->option[i] != sim_option_default[i])
            fprintf(f, "option %s %lld\n", sim_option_name[i], (long long)s->option[i]);
    for (int i = 0; i < s->n_faults; i++) {
        sim_fault_text(&s->fault[i], text, sizeof text);
        fprintf(f, "%s\n", text);
    }
}

static int find_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name))
            return i;
    return -1;
}

static int read_fault(const char *line, struct sim_schedule *s)
{
    char kind[32], node[16], other[16], mark[16];
    long long us, ms;
    struct sim_fault f = {.nth = 1};
    if (sscanf(line, "fault %31s %15s %15s after %15s %d us %lld ms %lld", kind, node, other, mark,
               &f.nth, &us, &ms) != 7)
        return 0;
    int k = find_name(sim_fault_name, SIM_N_FAULTS, kind);
    int m = find_name(sim_mark_name, SIM_N_MARKS, mark);
    f.kind = (enum sim_fault_kind)k;
    f.mark = (enum sim_mark)m;
    f.after_us = us;
    f.ms = ms;
    f.node = node_of(node);
    f.other = node_of(other);
    if (k < 0 || m < 0 || f.node < 0 || f.other < 0 || f.node >= SIM_NODES ||
        f.other >= SIM_NODES || s->n_faults == SIM_MAX_FAULTS)
        return 0;
    s->fault[s->n_faults++] = f;
    return 1;
}

static int read_line(const char *line, struct sim_schedule *s)
{
    char name[32];
    long long value;
    unsigned long long seed;
    if (line[0] == '#' || line[0] == '\n')
        return 1;
    if (sscanf(line, "check %31s", s->check) == 1)
        return 1;
    if (sscanf(line, "seed %llu", &seed) == 1) {
        s->seed = seed;
        return 1;
    }
    if (sscanf(line, "option %31s %lld", name, &value) == 2) {
        int i = find_name(sim_option_name, SIM_N_OPTIONS, name);
        if (i < 0 || value < option_low[i] || value > sim_option_high[i])
            return 0;
        s->option[i] = value;
        return 1;
    }
    return read_fault(line, s);
}

enum status sim_schedule_read(const char *path, struct sim_schedule *s)
{
    char line[256];
    FILE *f = fopen(path, "r");
    enum status st = f ? ST_OK : ST_INVALID;
    *s = (struct sim_schedule){.seed = 0};
    memcpy(s->option, sim_option_default, sizeof s->option);
    if (!f)
        fprintf(stderr, "%s cannot be opened\n", path);
    while (f && st == ST_OK && fgets(line, sizeof line, f))
        if (!read_line(line, s)) {
            fprintf(stderr, "%s: not a line of a schedule: %s", path, line);
            st = ST_INVALID;
        }
    if (f)
        fclose(f);
    return st;
}

void sim_schedule_quit(struct sim_schedule *s)
{
    struct sim_random r = sim_random_of(s->seed, STREAM_FAULTS, 2);
    struct sim_fault f = {.kind = FAULT_quit, .mark = MARK_version};
    int64_t *o = s->option;
    int alone = sim_chance(&r, 40), all = alone || sim_chance(&r, 50);
    if (sim_chance(&r, 25)) {
        sim_scene_late_order(&r, s);
        return;
    }
    o[OPT_coordinator] = 1;
    if (alone) {
        s->n_faults = 0;
        o[OPT_steps] = sim_option_high[OPT_steps];
        o[OPT_calm_ms] = sim_option_high[OPT_calm_ms];
        /* If the timeout is 0, ps 0 may judge the end of a stream before the leave message arrives;
         * over a slow link the leave message may never arrive. */
        o[OPT_worker_timeout_ms] = 10000;
        o[OPT_tail] = 0;
    }
    f.nth = (int)sim_between(&r, 1, 30);
    f.after_us = sim_log(&r, 0, 100000);
    for (int i = 0; i < (int)o[OPT_workers] && s->n_faults < SIM_MAX_FAULTS; i++) {
        f.node = f.other = SIM_SERVERS + i;
        if (sim_chance(&r, 40))
            f.nth = (int)sim_between(&r, 1, 30);
        if (all || sim_chance(&r, 50))
            s->fault[s->n_faults++] = f;
    }
}

int sim_schedule_only_quits(const struct sim_schedule *s)
{
    for (int i = 0; i < s->n_faults; i++)
        if (s->fault[i].kind != FAULT_quit)
            return 0;
    return s->n_faults > 0;
}

void sim_schedule_clip(struct sim_schedule *s)
{
    s->option[OPT_mode] = 0;
    s->option[OPT_clip] = 1;
}

static void remove_apart(struct sim_schedule *s)
{
    int n = 0;
    for (int i = 0; i < s->n_faults; i++)
        if (s->fault[i].kind != FAULT_apart)
            s->fault[n++] = s->fault[i];
    s->n_faults = n;
}

void sim_schedule_tables(struct sim_schedule *s)
{
    struct sim_random r = sim_random_of(s->seed, STREAM_OPTIONS, 3);
    int64_t *o = s->option;
    if (o[OPT_mode] == 3) /* a job with backup workers has no tables */
        o[OPT_mode] = 0;
    if (o[OPT_steps] < 4) /* so that rows become absent */
        o[OPT_steps] = sim_between(&r, 4, sim_option_high[OPT_steps]);
    o[OPT_tables] = sim_between(&r, 1, 2);
    o[OPT_buckets] = sim_between(&r, 0, sim_option_high[OPT_buckets]);
    o[OPT_dim] = sim_between(&r, 1, sim_option_high[OPT_dim]);
    o[OPT_row_optimizer] = sim_between(&r, 0, sim_option_high[OPT_row_optimizer]);
    o[OPT_admit_after] = sim_chance(&r, 50) ? sim_between(&r, 2, 3) : 1;
    o[OPT_evict_after] = sim_chance(&r, 60) ? sim_between(&r, 1, 4) : 0;
    o[OPT_max_rows] = sim_chance(&r, 50) ? sim_between(&r, option_low[OPT_max_rows], 16) : 24;
    o[OPT_reads] = sim_between(&r, 0, 2);
    if (sim_chance(&r, 10)) {
        sim_scene_unsettled(&r, s);
    } else if (sim_chance(&r, 10)) {
        sim_scene_uneven_stop(&r, s);
    } else if (sim_chance(&r, 10)) {
        o[OPT_mode] = 0;
        o[OPT_coordinator] = o[OPT_full_stops] = 1;
        o[OPT_buckets] = sim_between(&r, 0, 1);
        o[OPT_max_rows] = sim_between(&r, option_low[OPT_max_rows], 12);
        /* A worker that waits for others would wait for ever if these end with errors. */
        o[OPT_min_workers] = 0;
        remove_apart(s);
    }
    r = sim_random_of(s->seed, STREAM_OPTIONS, 4);
    o[OPT_row_dtype] = sim_between(&r, 0, sim_option_high[OPT_row_dtype]);
}

/* Changes the node of a fault to the region's second server, or to its link with the first one. */
static void strike_second(struct sim_fault *f)
{
    int second = f->node + SIM_WORKERS / 2;
    int fits = f->kind == FAULT_kill || f->kind == FAULT_power || f->kind == FAULT_pause ||
               f->kind == FAULT_reset || f->kind == FAULT_cut || f->kind == FAULT_cut_one_way ||
               f->kind == FAULT_isolate || f->kind == FAULT_slow_link;
    if (!fits)
        return;
    f->other = f->node;
    f->node = second;
}

void sim_schedule_regions(struct sim_schedule *s)
{
    struct sim_random r = sim_random_of(s->seed, STREAM_OPTIONS, 1);
    int64_t *o = s->option;
    int n = 0;
    o[OPT_regions] = o[OPT_coordinator] = 1;
    o[OPT_mode] = o[OPT_min_workers] = o[OPT_lacks] = 0;
    o[OPT_servers] = o[OPT_servers] > 2 && sim_chance(&r, 70) ? 1 : o[OPT_servers];
    o[OPT_region_steps] = sim_between(&r, 1, 4);
    o[OPT_overlap] = sim_chance(&r, 40) ? sim_between(&r, 1, 3) : 0;
    o[OPT_max_drift] = sim_chance(&r, 40) ? sim_between(&r, 1, 8) : 0;
    o[OPT_region_workers] = sim_between(&r, 1, 2);
    o[OPT_region_save] = sim_chance(&r, 70) ? sim_between(&r, 1, 4) : 0;
    o[OPT_churn_ms] = sim_chance(&r, 50) ? sim_between(&r, 100, 2000) : 0;
    if (sim_chance(&r, 60))
        o[OPT_save_steps] = 1;
    o[OPT_fragments] = sim_chance(&r, 40) ? sim_between(&r, 2, 4) : 1;
    o[OPT_region_servers] = o[OPT_workers] <= SIM_WORKERS / 2 && sim_chance(&r, 50) ? 2 : 1;
    for (int i = 0; i < s->n_faults; i++) {
        struct sim_fault f = s->fault[i];
        int region = !sim_is_server(f.node);
        if (region && o[OPT_region_servers] > 1 && sim_chance(&r, 50))
            strike_second(&f);
        if (region && f.kind == FAULT_term) /* a region never returns after SIGTERM */
            f.kind = FAULT_kill;
        if (!region || (f.kind != FAULT_drain && f.kind != FAULT_join))
            s->fault[n++] = f;
    }
    s->n_faults = n;
}
