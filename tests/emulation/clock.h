/* tests/emulation/clock.h - virtual time of the emulated cards, for tests of the order in which a
 * card and its host work. The time is off until emulation_clock_start().
 *
 * Each thread of the host has its own time. A call to CUDA that queues work, or that waits, adds
 * `call_us` to it. A wait for an event ends at the event's time at the earliest.
 *
 * Each piece of work gets its time when it is queued. It begins when all of this is true: the host
 * has queued it; the work before it in its stream has ended; the work that the stream waits for has
 * ended; its engine is free. Kernels of one stream run one after the other, kernels of different
 * streams at the same time. A kernel's duration is in the table `costs`. All copies in one
 * direction share an engine, which copies one block at a time. Work that a CUDA graph launches has
 * the host's time at the launch.
 * Threads: emulation_clock_start() and emulation_clock_spans() may be called only while no other
 * thread uses the emulation; all other functions by any thread at any time. */
#ifndef TESTS_EMULATION_CLOCK_H
#define TESTS_EMULATION_CLOCK_H
#include <stddef.h>

enum emulation_engine { ENGINE_NONE, ENGINE_KERNEL, ENGINE_TO_CARD, ENGINE_TO_HOST, N_ENGINES };

/* Duration of a kernel, or of a library's call. If several entries have the same name, the launches
 * of that name have these durations in turn. A kernel without an entry lasts `kernel_us`. */
struct emulation_cost {
    const char *name;
    double us;
};

struct emulation_clock {
    double call_us, kernel_us;
    double copy_us;                     /* duration of an empty copy */
    double copy_bytes_per_us;           /* 25000 is 25 GB/s */
    const struct emulation_cost *costs; /* [n_costs] borrowed while the time is on */
    int n_costs;
};

/* A piece of a card's work. */
struct emulation_span {
    const char *name; /* kernel or call of a library; "" for a copy */
    enum emulation_engine engine;
    /* the copy's address on the host; NULL: this is no copy between the host and a card */
    const void *host;
    size_t bytes; /* size of the copy */
    double queued_us, begin_us, end_us;
};

void emulation_clock_start(const struct emulation_clock *clock);
double emulation_clock_now(void); /* the calling thread's time; 0 before its first call */
/* sets the thread's time to this time, unless the thread's time is later already */
void emulation_clock_reach(double us);
void emulation_clock_set(double us); /* sets the thread's time; a test calls this to act as
                                      * another thread of the host */
/* Returns the work queued since the start, in the order of the calls. */
const struct emulation_span *emulation_clock_spans(int *n);

/* ---- for the emulation ---- */

void emulation_clock_call(void); /* adds call_us to the calling thread's time */
/* Sets the name of the kernel that this thread queues next. NULL: the work that it queues next
 * belongs to the kernel before, and adds no duration. */
void emulation_clock_name(const char *name);
const char *emulation_clock_named(void);
/* Adds work that can begin at ready_us. host, bytes: see struct emulation_span. Returns the time at
 * which it ends. */
double emulation_clock_add(enum emulation_engine engine, const void *host, size_t bytes,
                           double ready_us);

#endif
