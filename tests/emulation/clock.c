/* tests/emulation/clock.c - see the header. A copy gets the first interval that is long enough in
 * which its copy engine is idle. This need not be after the engine's last queued copy: that copy
 * may begin late, because its stream waits for other work, and in that time an engine of a real
 * card carries out copies of other streams. */
#include "tests/emulation/clock.h"
#include "tests/emulation/runtime.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the variables below */
static struct emulation_clock clock_of;                  /* while the time is off, call_us is 0 */
static struct emulation_span *spans;
static int n_spans, cap_spans;
static int *n_used; /* [clock_of.n_costs] launches that had this line's duration */
static _Atomic int is_on;

static __thread double now_us;
static __thread const char *next_name;

void emulation_clock_start(const struct emulation_clock *clock)
{
    pthread_mutex_lock(&lock);
    clock_of = *clock;
    n_spans = 0;
    free(n_used);
    n_used = calloc((size_t)clock->n_costs + 1, sizeof *n_used);
    if (n_used == NULL)
        emulation_fail("no memory");
    is_on = 1;
    pthread_mutex_unlock(&lock);
}

double emulation_clock_now(void)
{
    return now_us;
}

void emulation_clock_reach(double us)
{
    now_us = us > now_us ? us : now_us;
}

void emulation_clock_set(double us)
{
    now_us = us;
}

const struct emulation_span *emulation_clock_spans(int *n)
{
    *n = n_spans;
    return spans;
}

void emulation_clock_call(void)
{
    if (is_on)
        now_us += clock_of.call_us;
}

void emulation_clock_name(const char *name)
{
    next_name = name;
}

const char *emulation_clock_named(void)
{
    return next_name;
}

/* Returns the duration of a launch of this kernel. If several entries of `costs` have the kernel's
 * name, the entry that has had the fewest launches counts. The caller holds the lock. */
static double kernel_us(const char *name)
{
    int found = -1;
    for (int i = 0; i < clock_of.n_costs; i++)
        if (strcmp(clock_of.costs[i].name, name) == 0 && (found < 0 || n_used[i] < n_used[found]))
            found = i;
    if (found < 0)
        return clock_of.kernel_us;
    n_used[found]++;
    return clock_of.costs[found].us;
}

/* Returns the first time from ready_us on at which the engine is idle for `us` microseconds. The
 * caller holds the lock. */
static double first_gap(enum emulation_engine engine, double ready_us, double us)
{
    double begin = ready_us;
    for (int i = 0; i < n_spans; i++) {
        const struct emulation_span *s = &spans[i];
        if (s->engine == engine && s->begin_us < begin + us && s->end_us > begin) {
            begin = s->end_us;
            i = -1; /* an earlier span may cover the new time */
        }
    }
    return begin;
}

double emulation_clock_add(enum emulation_engine engine, const void *host, size_t bytes,
                           double ready_us)
{
    const char *name = next_name;
    next_name = NULL;
    if (!is_on)
        return 0;
    double begin = ready_us > now_us ? ready_us : now_us;
    if (engine == ENGINE_NONE || (engine == ENGINE_KERNEL && name == NULL))
        return engine == ENGINE_NONE ? ready_us : begin;
    pthread_mutex_lock(&lock);
    double us = engine == ENGINE_KERNEL
                    ? kernel_us(name)
                    : clock_of.copy_us + (double)bytes / clock_of.copy_bytes_per_us;
    if (engine != ENGINE_KERNEL)
        begin = first_gap(engine, begin, us);
    if (n_spans == cap_spans) {
        cap_spans = cap_spans * 2 + 256;
        spans = realloc(spans, (size_t)cap_spans * sizeof *spans);
        if (spans == NULL)
            emulation_fail("no memory");
    }
    spans[n_spans++] = (struct emulation_span){.name = engine == ENGINE_KERNEL ? name : "",
                                               .engine = engine,
                                               .host = host,
                                               .bytes = bytes,
                                               .queued_us = now_us,
                                               .begin_us = begin,
                                               .end_us = begin + us};
    pthread_mutex_unlock(&lock);
    return begin + us;
}
