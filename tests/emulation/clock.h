/* tests/emulation/clock.h - virtual time of the emulated cards, for tests of the order in which a
 * card and its host work. The time is off until emulation_clock_start().
 *
 * Each thread of the host has its own time. A call to CUDA that queues work, or that waits, adds
 * `call_us` to it, and a wait for an event also ends at the event's time. Each piece of work gets
 * its time when it is queued: it begins when the host has queued it, the work before it in its
 * stream and the work that the stream waits for have ended, and its engine is free. Kernels of one
 * stream run one after the other, those of different streams at the same time; a kernel's duration
 * is in the table `costs`. All copies in one direction share an engine, which copies one block at a
 * time. Work that a CUDA graph launches has the host's time at the launch.
 * Threads: any; start and the spans belong to a thread while no other thread uses the emulation. */
#ifndef TESTS_EMULATION_CLOCK_H
#define TESTS_EMULATION_CLOCK_H
#include <stddef.h>

enum emulation_engine { ENGINE_NONE, ENGINE_KERNEL, ENGINE_TO_CARD, ENGINE_TO_HOST, N_ENGINES };

/* Duration of a kernel, or of a library's call. If several lines have one name, its launches have
 * these durations in turn. A kernel without a line lasts `kernel_us`. */
struct emulation_cost {
    const char *name;
    double us;
};

struct emulation_clock {
    double call_us, kernel_us;
    double copy_us;                     /* duration of an empty copy */
    double copy_bytes_per_us;           /* 25000: 25 GB/s */
    const struct emulation_cost *costs; /* [n_costs] borrowed while the time is on */
    int n_costs;
};

/* One piece of a card's work. */
struct emulation_span {
    const char *name; /* kernel or call of a library; "" for a copy */
    enum emulation_engine engine;
    const void *host; /* address of a copy on the host; NULL: no copy to or from the host */
    size_t bytes;     /* size of a copy */
    double queued_us, begin_us, end_us;
};

void emulation_clock_start(const struct emulation_clock *clock);
double emulation_clock_now(void);      /* the calling thread's time; 0 before its first call */
void emulation_clock_reach(double us); /* lets the thread wait until this time */
void emulation_clock_set(double us);   /* sets the thread's time, for a thread of the host that the
                                        * test imitates */
/* Returns the work queued since the start, in the order of the calls. */
const struct emulation_span *emulation_clock_spans(int *n);

/* ---- for the emulation ---- */

void emulation_clock_call(void); /* the thread calls CUDA */
/* Sets the name of the kernel that this thread queues next; NULL: a part of the work before it. */
void emulation_clock_name(const char *name);
const char *emulation_clock_named(void);
/* Adds work that can begin at ready_us. host, bytes: see struct emulation_span. Returns the time at
 * which it ends. */
double emulation_clock_add(enum emulation_engine engine, const void *host, size_t bytes,
                           double ready_us);

#endif
