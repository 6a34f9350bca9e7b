/* tests/sim/scene.c - see scene.h. */
#include "tests/sim/scene.h"
#include "tests/sim/sim.h"

static void add_fault(struct sim_schedule *s, struct sim_fault f)
{
    if (s->n_faults < SIM_MAX_FAULTS)
        s->fault[s->n_faults++] = f;
}

/* Adds a fault beside a drain: the drained server hangs or is cut off before, or ps 0 receives
 * SIGTERM during the drain. */
static void draw_beside_drain(struct sim_random *r, struct sim_schedule *s)
{
    struct sim_fault *drain = &s->fault[s->n_faults - 1], f = *drain;
    int percent = (int)sim_below(r, 100);
    if (s->n_faults == SIM_MAX_FAULTS || percent >= 80)
        return;
    if (percent < 40) {
        f.kind = sim_chance(r, 50) ? FAULT_pause : FAULT_isolate;
        f.ms = sim_between(r, 5000, 60000);
        drain->after_us += sim_log(r, 1, 20000000);
    } else {
        f.kind = FAULT_term;
        f.node = 0;
        f.after_us += sim_log(r, 1, 1000000);
    }
    s->fault[s->n_faults++] = f;
}

/* Adds the loss of a server once two checkpoints exist: only then do servers read the newest one,
 * which is damaged. */
static void draw_beside_damage(struct sim_random *r, struct sim_schedule *s)
{
    struct sim_fault *damage = &s->fault[s->n_faults - 1], f = *damage;
    if (s->n_faults == SIM_MAX_FAULTS || !sim_chance(r, 80))
        return;
    damage->mark = MARK_start;
    damage->nth = 1;
    damage->after_us = 0;
    f.kind = sim_chance(r, 70) ? FAULT_kill : FAULT_power;
    f.node = (int)sim_below(r, s->option[OPT_servers]);
    f.mark = MARK_manifest;
    f.nth = (int)sim_between(r, 2, 4);
    f.after_us = sim_log(r, 1, 1000000);
    s->fault[s->n_faults++] = f;
}

/* Adds the death of another server, so that a server reads a checkpoint from the folder that never
 * answers that server. Adds SIGTERM, so that the server has to end in this state. */
static void draw_beside_stuck(struct sim_random *r, struct sim_schedule *s)
{
    struct sim_fault *stuck = &s->fault[s->n_faults - 1];
    if (s->n_faults + 2 > SIM_MAX_FAULTS || !sim_chance(r, 70))
        return;
    s->option[OPT_chunks] =
        sim_option_high[OPT_chunks]; /* so that this server has a chunk to read */
    s->option[OPT_folder] = 1;
    stuck->mark = MARK_manifest;
    stuck->nth = (int)sim_between(r, 1, 3);
    struct sim_fault lost = *stuck, end = *stuck;
    lost.kind = FAULT_kill;
    lost.node = (int)sim_below(r, s->option[OPT_servers]);
    lost.after_us += sim_log(r, 1, 100000);
    lost.ms = sim_between(r, 1, 500);
    end.kind = FAULT_term;
    end.after_us += sim_below(r, 20000000);
    s->fault[s->n_faults++] = lost;
    s->fault[s->n_faults++] = end;
}

void sim_scene_draw_beside(struct sim_random *r, struct sim_schedule *s)
{
    const struct sim_fault *last = &s->fault[s->n_faults - 1];
    if (last->kind == FAULT_drain && sim_is_server(last->node) && last->node != 0)
        draw_beside_drain(r, s);
    else if (last->kind == FAULT_damaged)
        draw_beside_damage(r, s);
    else if (last->kind == FAULT_disk_stuck)
        draw_beside_stuck(r, s);
}

static int draw_worker(struct sim_random *r, const struct sim_schedule *s)
{
    return SIM_SERVERS + (int)sim_below(r, s->option[OPT_workers]);
}

/* Adds a scene: ps 0 loses its memory, perhaps after it was started again once. One worker also
 * loses its memory, while another worker cannot reach ps 0. */
static void draw_lost_memory(struct sim_random *r, struct sim_schedule *s, struct sim_fault f)
{
    int64_t cut_ms = f.ms;
    s->option[OPT_folder] = sim_chance(r, 50);
    if (sim_chance(r, 50)) /* only workers then report the earlier generations */
        s->option[OPT_servers] = 1;
    f.ms = sim_log(r, 1, 2000);
    if (s->option[OPT_folder]) {
        struct sim_fault again = f;
        again.mark = MARK_plan;
        again.after_us = sim_below(r, sim_chance(r, 50) ? 20000 : 1);
        add_fault(s, again);
        f.kind = FAULT_lose_folder;
    }
    if (sim_chance(r, 50)) { /* the fault then strikes while members join */
        f.mark = MARK_start;
        f.after_us = sim_below(r, 1500000);
    } else {
        f.nth = (int)sim_between(r, 1, s->option[OPT_steps] * s->option[OPT_chunks]);
    }
    add_fault(s, f);
    f.kind = FAULT_kill;
    f.node = draw_worker(r, s);
    add_fault(s, f);
    f.kind = sim_chance(r, 50) ? FAULT_cut : FAULT_pause;
    f.node = draw_worker(r, s);
    f.ms = cut_ms;
    if (sim_chance(r, 50))
        add_fault(s, f);
}

/* Adds a scene: the folder hangs while ps 0 records its next epoch, and ps 0 dies again once it
 * makes a plan. */
static void draw_unrecorded(struct sim_random *r, struct sim_schedule *s, struct sim_fault f)
{
    s->option[OPT_folder] = 1;
    f.mark = MARK_plan;
    f.ms = sim_log(r, 1, 1000);
    add_fault(s, f);
    f.nth = 2;
    f.after_us = sim_log(r, 1, 1000000);
    add_fault(s, f);
    f.kind = FAULT_disk_hang;
    f.mark = MARK_restart;
    f.nth = 1;
    f.after_us = sim_below(r, 50000);
    f.ms = sim_between(r, 1000, 20000);
    add_fault(s, f);
}

/* Adds a scene: a server stays away until long after all other faults, in a job that needs all of
 * its workers. The workers join at ps 0 again and again while they wait for the server. */
static void draw_absence(struct sim_random *r, struct sim_schedule *s, struct sim_fault f)
{
    if (s->option[OPT_servers] < 2)
        s->option[OPT_servers] = 2;
    s->option[OPT_chunks] = sim_option_high[OPT_chunks]; /* so that the server has chunks */
    s->option[OPT_min_workers] = s->option[OPT_workers];
    s->n_faults = 0;
    f.kind = FAULT_gone;
    f.node = (int)sim_between(r, 1, s->option[OPT_servers] - 1);
    f.mark = sim_chance(r, 50) ? MARK_start : sim_chance(r, 50) ? MARK_plan : MARK_join;
    if (f.mark == MARK_start)
        f.after_us = sim_below(r, 1500000);
    add_fault(s, f);
}

/* Adds a scene: ps 0 receives SIGTERM while a server is drained to which ps 0 has a slow link. */
static void draw_end_of_drain(struct sim_random *r, struct sim_schedule *s, struct sim_fault f)
{
    int64_t n = s->option[OPT_servers] < 2 ? 2 : s->option[OPT_servers];
    s->option[OPT_servers] = n;
    s->option[OPT_folder] = 1;
    f.kind = FAULT_drain;
    f.node = (int)sim_between(r, 1, n - 1);
    f.nth = (int)sim_between(r, 1, s->option[OPT_steps] * s->option[OPT_chunks]);
    add_fault(s, f);
    struct sim_fault slow = f;
    slow.kind = FAULT_slow_link;
    slow.node = 0;
    slow.other = (int)sim_between(r, 1, n - 1);
    slow.ms = sim_between(r, 1000, 20000);
    add_fault(s, slow);
    f.kind = FAULT_term;
    f.node = 0;
    f.after_us += sim_log(r, 1, 4 * 100 * s->option[OPT_delay_us]);
    add_fault(s, f);
}

/* Adds a scene: a folder hangs at the last step, or never answers a server again, while a worker
 * restarts or a server is drained. */
static void draw_slow_end(struct sim_random *r, struct sim_schedule *s, struct sim_fault f)
{
    int64_t last = s->option[OPT_steps] * s->option[OPT_chunks], n = s->option[OPT_servers];
    int64_t after_us = f.after_us;
    s->option[OPT_folder] = 1;
    f.nth = (int)sim_between(r, last > 4 ? last - 4 : 1, last);
    f.node = (int)sim_below(r, n);
    f.kind = f.node > 0 && sim_chance(r, 20) ? FAULT_disk_stuck : FAULT_disk_hang;
    f.after_us = 0;
    add_fault(s, f);
    f.kind = n > 1 && sim_chance(r, 50) ? FAULT_drain : FAULT_kill;
    f.node = f.kind == FAULT_drain ? (int)sim_between(r, 1, n - 1) : draw_worker(r, s);
    f.after_us = after_us;
    f.ms = sim_log(r, 1, 500);
    add_fault(s, f);
}

/* Adds a scene: servers die one after the other while generations begin. */
static void draw_deaths(struct sim_random *r, struct sim_schedule *s, struct sim_fault f)
{
    for (f.nth = 1; f.nth <= 3; f.nth++) {
        f.mark = sim_chance(r, 50) ? MARK_plan : MARK_stop;
        f.node = (int)sim_below(r, s->option[OPT_servers]);
        f.after_us = sim_log(r, 1, 20000);
        f.ms = sim_log(r, 1, 1000);
        add_fault(s, f);
    }
}

/* Adds a scene: a worker reaches ps 0, but not another server, for a long time, and is started
 * again. */
static void draw_half_cut(struct sim_random *r, struct sim_schedule *s, struct sim_fault f)
{
    if (s->option[OPT_servers] < 2)
        return;
    f.kind = FAULT_cut;
    f.node = draw_worker(r, s);
    f.other = (int)sim_between(r, 1, s->option[OPT_servers] - 1);
    f.mark = sim_chance(r, 50) ? MARK_start : MARK_join;
    f.ms = sim_between(r, 5000, 60000);
    add_fault(s, f);
    f.kind = FAULT_kill;
    f.after_us++;
    f.ms = sim_log(r, 1, 1000);
    add_fault(s, f);
}

void sim_scene_draw(struct sim_random *r, struct sim_schedule *s)
{
    static void (*const scenes[])(struct sim_random *, struct sim_schedule *, struct sim_fault) = {
        draw_lost_memory, draw_slow_end,     draw_deaths,    draw_half_cut,
        draw_absence,     draw_end_of_drain, draw_unrecorded};
    enum { N = sizeof scenes / sizeof *scenes };
    int scene = (int)sim_below(r, 4 * N);
    const struct sim_fault f = {.kind = FAULT_kill,
                                .mark = MARK_version,
                                .nth = 1,
                                .after_us = sim_log(r, 1, 1000000),
                                .ms = sim_log(r, 10, 20000)};
    if (scene >= N)
        return;
    s->option[OPT_coordinator] = 1;
    scenes[scene](r, s, f);
}

void sim_scene_late_order(struct sim_random *r, struct sim_schedule *s)
{
    int64_t *o = s->option;
    s->n_faults = 0;
    o[OPT_coordinator] = o[OPT_folder] = o[OPT_save_steps] = 1;
    o[OPT_mode] = o[OPT_min_workers] = 0;
    o[OPT_optimizer] = sim_between(r, 1, sim_option_high[OPT_optimizer]);
    o[OPT_servers] = o[OPT_chunks] = sim_between(r, 2, sim_option_high[OPT_servers]);
    o[OPT_steps] = sim_option_high[OPT_steps];
    o[OPT_workers] = 2;
    o[OPT_delay_us] = sim_between(r, 1000, 5000);
    o[OPT_compute_ms] =
        o[OPT_delay_us] * sim_between(r, 15, 50) / 1000; /* so that the order arrives steps later */
    o[OPT_tail] = o[OPT_no_memory] = 0;
    struct sim_fault f = {.kind = FAULT_slow_link, .mark = MARK_start, .nth = 1, .ms = 60000};
    f.other = (int)o[OPT_servers] - 1;
    add_fault(s, f);
    f.kind = FAULT_cut; /* so that ps 0 receives the error later than the order's result */
    f.node = draw_worker(r, s);
    f.other = 0;
    f.mark = MARK_version;
    f.nth = (int)sim_between(r, o[OPT_servers] * 4, o[OPT_servers] * 11);
    f.after_us = sim_below(r, o[OPT_compute_ms] * 1000);
    f.ms = sim_between(r, 100, 4000);
    add_fault(s, f);
    f.kind = FAULT_quit;
    f.other = f.node;
    add_fault(s, f);
    f.kind = FAULT_kill;
    f.node = f.other = (int)sim_below(r, o[OPT_servers]);
    f.mark = MARK_manifest;
    f.nth = (int)sim_between(r, 1, 4);
    add_fault(s, f);
}

void sim_scene_unsettled(struct sim_random *r, struct sim_schedule *s)
{
    int64_t *o = s->option;
    s->n_faults = 0;
    o[OPT_coordinator] = 1;
    o[OPT_servers] = sim_between(r, 1, 3);
    o[OPT_chunks] = sim_option_high[OPT_chunks]; /* so that the server that joins has chunks */
    o[OPT_steps] = sim_option_high[OPT_steps];
    o[OPT_delay_us] = sim_between(r, 50, 1000);
    o[OPT_compute_ms] = sim_between(r, 1, 20);
    o[OPT_tail] = o[OPT_no_memory] = 0;
    struct sim_fault f = {.kind = FAULT_join, .mark = MARK_version, .ms = 1};
    f.nth = (int)sim_between(r, 1, 30);
    add_fault(s, f);
    f.kind = FAULT_cut_one_way; /* ps 0 does not learn that the server has begun */
    f.node = (int)o[OPT_servers];
    f.mark = MARK_plan;
    f.nth = 2;
    f.after_us = sim_below(r, 4 * o[OPT_delay_us]);
    f.ms = sim_between(r, 1000, 20000);
    add_fault(s, f);
    f.kind = FAULT_kill;
    f.other = f.node;
    f.after_us += sim_between(r, 1, 300) * 1000;
    f.ms = sim_log(r, 10, 3000);
    add_fault(s, f);
}

void sim_scene_uneven_stop(struct sim_random *r, struct sim_schedule *s)
{
    int64_t *o = s->option;
    s->n_faults = 0;
    o[OPT_coordinator] = o[OPT_folder] = o[OPT_save_steps] = 1;
    o[OPT_mode] = o[OPT_min_workers] = 0;
    o[OPT_servers] = 2;
    o[OPT_workers] = sim_between(r, 1, 2);
    o[OPT_chunks] = sim_option_high[OPT_chunks];
    o[OPT_steps] = sim_option_high[OPT_steps];
    o[OPT_delay_us] = sim_between(r, 200, 1000);
    o[OPT_compute_ms] = sim_between(r, 5, 50);
    o[OPT_tail] = o[OPT_no_memory] = 0;
    struct sim_fault f = {.kind = FAULT_slow_link, .mark = MARK_start, .nth = 1, .ms = 60000};
    f.node = SIM_SERVERS;
    f.other = 1;
    add_fault(s, f);
    f.kind = FAULT_disk_hang;
    f.node = f.other = 0;
    f.mark = MARK_version;
    f.nth = (int)sim_between(r, 5, 60);
    f.ms = sim_between(r, 500, 10000);
    add_fault(s, f);
    f.kind = FAULT_join;
    f.node = f.other = (int)(sim_chance(r, 50) ? SIM_SERVERS : 0);
    f.after_us = sim_log(r, 1, 200 * o[OPT_delay_us]);
    add_fault(s, f);
}
