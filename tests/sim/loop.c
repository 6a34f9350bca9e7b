/* tests/sim/loop.c - see sim.h: a list of {time, tie, event}, the last event first. Ties are
 * random, so that events of equal times occur in every order. Events from `horizon` on, mostly
 * deadlines, wait in a list without an order until the other list is empty. So that list is short,
 * about 18 events, and a new event moves only the few that occur earlier. The next run uses the
 * blocks of memory again. */
#include "tests/sim/fiber.h"
#include "tests/sim/sim.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sim sim;

struct entry {
    /* time in the upper bits, tie in the lower: so events are compared without a branch */
    unsigned __int128 key;
    struct sim_event *event;
};
static struct entry *near, *late;
static int n_near, near_room, n_late, late_room;
static int64_t horizon;

enum { NEAR_MS = 1500 }; /* time from the first event to the horizon */
enum { BLOCK_BYTES = 1 << 20, MAX_BLOCKS = 512 };
static char *blocks[MAX_BLOCKS];
static int n_used;                /* number of blocks of which this run uses memory */
static char *unused, *unused_end; /* memory of the last of these that is not used yet */

static void use_next_block(size_t bytes)
{
    CHECK(bytes <= BLOCK_BYTES && n_used < MAX_BLOCKS);
    if (!blocks[n_used])
        blocks[n_used] = malloc(BLOCK_BYTES);
    unused = blocks[n_used++];
    CHECK(unused);
    unused_end = unused + BLOCK_BYTES;
}

static inline void *take(size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > (size_t)(unused_end - unused))
        use_next_block(bytes);
    void *p = unused;
    unused += bytes;
    return p;
}

void *sim_alloc_list(size_t bytes)
{
    return take(bytes);
}

void *sim_alloc(size_t bytes)
{
    return memset(take(bytes), 0, bytes);
}

void *sim_copy(const void *from, size_t bytes)
{
    return memcpy(take(bytes), from, bytes);
}

void sim_loop_reset(void)
{
    n_near = n_late = 0;
    horizon = 0;
    n_used = 0;
    unused = unused_end = NULL;
}

/* Makes room for one more entry. */
static struct entry *grow(struct entry *list, int n, int *room)
{
    if (n < *room)
        return list;
    *room = *room ? *room * 2 : 1024;
    list = realloc(list, (size_t)*room * sizeof *list);
    CHECK(list);
    return list;
}

static int64_t time_of(struct entry e)
{
    return (int64_t)(e.key >> 64);
}

/* The parameters are passed in registers. A `struct entry` would be written to the stack in halves
 * and read at once as a whole, for which the processor waits. */
static void push(int64_t at, uint64_t tie, struct sim_event *event)
{
    unsigned __int128 key = (unsigned __int128)at << 64 | tie;
    if (at >= horizon) {
        late = grow(late, n_late, &late_room);
        late[n_late++] = (struct entry){key, event};
        return;
    }
    near = grow(near, n_near, &near_room);
    int i = n_near++;
    for (; i > 0 && near[i - 1].key < key; i--)
        near[i] = near[i - 1];
    near[i].key = key;
    near[i].event = event;
}

/* Moves the horizon, and moves the events before the new horizon to the list `near`, which is
 * empty. */
static void pass_horizon(void)
{
    int64_t first = INT64_MAX;
    int n = n_late;
    for (int i = 0; i < n; i++)
        first = time_of(late[i]) < first ? time_of(late[i]) : first;
    horizon = first + NEAR_MS * SIM_MS;
    n_late = 0;
    for (int i = 0; i < n; i++)
        push(time_of(late[i]), (uint64_t)late[i].key, late[i].event);
}

void sim_repost(struct sim_event *e, int64_t delay)
{
    int64_t at = sim.now + (delay > 0 ? delay : 0);
    push(at, sim_draw(&sim.ties), e);
}

struct sim_event *sim_post(int64_t delay, enum sim_event_kind kind, int node)
{
    struct sim_event *e = take(sizeof *e);
    *e =
        (struct sim_event){.kind = kind, .node = node, .life = node >= 0 ? sim.node[node].life : 0};
    sim_repost(e, delay);
    return e;
}

struct sim_event *sim_next(void)
{
    if (n_near == 0 && n_late > 0)
        pass_horizon();
    if (n_near == 0)
        return NULL;
    struct entry e = near[--n_near];
    sim.now = time_of(e);
    sim.n_events++;
    sim_digest((uint64_t)sim.now ^ (uint64_t)e.event->kind << 56 ^
               (uint64_t)(e.event->node + 1) << 48);
    return e.event;
}

void sim_digest(uint64_t what)
{
    sim.digest = rng_mix(sim.digest ^ what);
}

void sim_story(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("%10.6f ", (double)(sim.now - SIM_S) * 1e-9);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
}

void sim_fail(const char *check, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sim.why, sizeof sim.why, fmt, ap);
    va_end(ap);
    sim.check = check;
    STORY("CHECK %s failed: %s", check, sim.why);
    fiber_leave();
    longjmp(sim.leave, 1);
}

void sim_mark(enum sim_mark mark)
{
    sim.marks[mark]++;
    sim_fault_mark(mark);
}

/* Returns virtual time to all linked code (--wrap). */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
    if (!sim.schedule)
        return __real_clock_gettime(clock, ts);
    int64_t now = fiber_now_ns();
    ts->tv_sec = now / 1000000000;
    ts->tv_nsec = now % 1000000000;
    return 0;
}
