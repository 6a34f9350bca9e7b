/* ps/store/stragglers.c - see stragglers.h. A step's chunks report one by one, from any thread; the
 * thread of the last report books the step (adds it to the members' totals). The reports of the
 * next step cannot arrive before that (I4). A client that violates this can only distort the
 * figures, since the ring has room for a few steps. The longest wait of a step is one atomic word,
 * with the wait in the high bits and the member in the low bits, so the larger word has the longer
 * wait. */
#include "ps/store/stragglers.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { RING = 4, MEMBER_BITS = 13 };

struct slot {
    _Atomic int n_chunks;     /* chunks that have reported */
    _Atomic uint64_t longest; /* wait in us << MEMBER_BITS | member */
};

struct total {
    _Atomic int64_t times, wait_us, skipped;
};

struct stragglers {
    struct stragglers_config cfg;
    struct slot ring[RING];
    struct total *totals;                       /* [n_members] */
    _Atomic uint64_t n_booked;                  /* number of booked steps */
    _Atomic uint64_t recent[STRAGGLERS_RECENT]; /* `longest` of each of the last steps */
};

enum status stragglers_create(const struct stragglers_config *cfg, struct stragglers **out)
{
    struct stragglers *s = calloc(1, sizeof *s);
    if (!s)
        return ST_NOMEM;
    s->cfg = *cfg;
    s->totals = calloc((size_t)cfg->n_members, sizeof *s->totals);
    if (!s->totals) {
        free(s);
        return ST_NOMEM;
    }
    *out = s;
    return ST_OK;
}

void stragglers_destroy(struct stragglers *s)
{
    if (!s)
        return;
    free(s->totals);
    free(s);
}

static int member_of(uint64_t word)
{
    return (int)(word & ((1 << MEMBER_BITS) - 1));
}

static int64_t wait_of(uint64_t word)
{
    return (int64_t)(word >> MEMBER_BITS);
}

/* Returns a text such as "worker 1 (10.0.0.7:2223)". */
static const char *name_of(const struct hosts *hosts, int index, char *text, size_t room)
{
    if (hosts && index < hosts->n)
        snprintf(text, room, "worker %d (%.100s)", index, hosts->addr[index]);
    else
        snprintf(text, room, "worker %d", index);
    return text;
}

static void book(struct stragglers *s, int64_t step, int member, int64_t wait_us)
{
    char name[160];
    uint64_t n = atomic_fetch_add_explicit(&s->n_booked, 1, memory_order_relaxed);
    atomic_store_explicit(&s->recent[n % STRAGGLERS_RECENT],
                          (uint64_t)wait_us << MEMBER_BITS | (uint64_t)member,
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&s->totals[member].times, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->totals[member].wait_us, wait_us, memory_order_relaxed);
    if (s->cfg.line_ms > 0 && wait_us > s->cfg.line_ms * 1000)
        LOG_I("step %" PRId64 " waited %" PRId64 " ms for %s", step, wait_us / 1000,
              name_of(s->cfg.hosts, s->cfg.member ? s->cfg.member[member] : member, name,
                      sizeof name));
}

void stragglers_note(struct stragglers *s, const struct late_step *late)
{
    if (s->cfg.n_members < 2)
        return;
    struct slot *slot = &s->ring[late->step % RING];
    uint64_t wait_us = late->wait_ns > 0 ? (uint64_t)late->wait_ns / 1000 : 0;
    uint64_t mine = wait_us << MEMBER_BITS | (uint64_t)late->member;
    uint64_t longest = atomic_load(&slot->longest);
    while (mine > longest && !atomic_compare_exchange_weak(&slot->longest, &longest, mine))
        ;
    if (atomic_fetch_add(&slot->n_chunks, 1) + 1 < s->cfg.n_chunks)
        return;
    atomic_store(&slot->n_chunks, 0);
    longest = atomic_exchange(&slot->longest, 0);
    book(s, late->step, member_of(longest), wait_of(longest));
}

void stragglers_skipped(struct stragglers *s, int member)
{
    atomic_fetch_add_explicit(&s->totals[member].skipped, 1, memory_order_relaxed);
}

void stragglers_total(const struct stragglers *s, int member, struct late_total *out)
{
    *out = (struct late_total){.times = atomic_load(&s->totals[member].times),
                               .seconds = (double)atomic_load(&s->totals[member].wait_us) / 1e6,
                               .skipped = atomic_load(&s->totals[member].skipped)};
}

int stragglers_recent(const struct stragglers *s, struct late_total *members)
{
    uint64_t n = atomic_load(&s->n_booked);
    int n_recent = n < STRAGGLERS_RECENT ? (int)n : STRAGGLERS_RECENT;
    for (int i = 0; i < n_recent; i++) {
        uint64_t word = atomic_load_explicit(&s->recent[i], memory_order_relaxed);
        members[member_of(word)].times++;
        members[member_of(word)].seconds += (double)wait_of(word) / 1e6;
    }
    return n_recent;
}

void stragglers_log(const struct late_total *totals, int n, const struct hosts *hosts)
{
    char name[160];
    for (int i = 0; i < n; i++)
        if (totals[i].skipped > 0)
            LOG_W("%s skipped %" PRId64
                  " contributions: they were not finite, or a region had nothing new to contribute",
                  name_of(hosts, i, name, sizeof name), totals[i].skipped);
    for (int i = 0; i < n; i++)
        if (totals[i].times > 0)
            LOG_I("%s was the last in %" PRId64 " steps; the other workers waited %.3f s for it",
                  name_of(hosts, i, name, sizeof name), totals[i].times, totals[i].seconds);
}
