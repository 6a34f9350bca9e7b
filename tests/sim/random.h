/* tests/sim/random.h - random numbers by stream: each use of chance (a link's delays, a trainer,
 * the faults) draws from its own stream. So a schedule from which the shrinker removes something
 * draws the same numbers everywhere else.
 * Owns: nothing. Threads: values. Errors: none. */
#ifndef TESTS_SIM_RANDOM_H
#define TESTS_SIM_RANDOM_H
#include "base/rng.h"
#include <stdbool.h>

enum sim_stream {
    STREAM_OPTIONS = 1,
    STREAM_FAULTS,
    STREAM_TIES,
    STREAM_LINK,
    STREAM_CALL,
    STREAM_DISK,
    STREAM_TRAINER,
    STREAM_IDENTITY,
    STREAM_MEMORY,
};

struct sim_random {
    uint64_t key, n;
};

static inline struct sim_random sim_random_of(uint64_t seed, enum sim_stream stream, uint64_t index)
{
    return (struct sim_random){rng_key(seed, RNG_TEST, (uint64_t)stream << 32 | index), 0};
}

static inline uint64_t sim_draw(struct sim_random *r)
{
    return rng_u64(r->key, r->n++);
}

/* Returns 0 to n - 1; 0 if n is 0. */
static inline int64_t sim_below(struct sim_random *r, int64_t n)
{
    uint64_t u = sim_draw(r);
    return n > 0 ? (int64_t)(u % (uint64_t)n) : 0;
}

static inline int64_t sim_between(struct sim_random *r, int64_t low, int64_t high)
{
    return low + sim_below(r, high - low + 1);
}

static inline bool sim_chance(struct sim_random *r, int percent)
{
    return sim_below(r, 100) < percent;
}

/* Draws a number from low to high, small numbers more often: each time the range doubles with a
 * chance of 75 %. */
static inline int64_t sim_log(struct sim_random *r, int64_t low, int64_t high)
{
    int64_t most = low;
    while (most < high && sim_chance(r, 75))
        most = most > 0 ? most * 2 : 1;
    return sim_between(r, low, most < high ? most : high);
}

#endif
