/* tests/sim/updates.c - the threads that make a server's updates (base/thread_pool.h), as fibers
 * (server.h). Each update ends a little later than the contribution that began it, and the updates
 * of several chunks end in any order. */
#include "base/thread_pool.h"
#include "net/shm/segment.h"
#include "tests/sim/fiber.h"
#include "tests/sim/server.h"

static char threads, memory; /* only their addresses are used */

struct thread_pool *server_threads(void)
{
    return (struct thread_pool *)&threads;
}

struct segment *server_memory(void)
{
    return (struct segment *)&memory;
}

/* Contributions stay in memory until the end of the run. */
struct segment *__wrap_segment_ref(struct segment *s);
struct segment *__wrap_segment_ref(struct segment *s)
{
    return s;
}

void __wrap_segment_unref(struct segment *s);
void __wrap_segment_unref(struct segment *s)
{
}

/* No server writes versions into the memory of a worker. */
struct segment *__wrap_segment_values(const struct segment *s);
struct segment *__wrap_segment_values(const struct segment *s)
{
    return NULL;
}

static void *run_loop(void *arg)
{
    struct thread_loop *l = arg;
    void (*ended)(void *ctx) = l->ended;
    void *ctx = l->ctx;
    for (int k = 0; k < l->n; k++) {
        fiber_pause();
        l->part(ctx, k);
    }
    fiber_pause();
    ended(ctx);
    server_made(sim.running);
    return NULL;
}

void __wrap_thread_pool_start(struct thread_pool *p, struct thread_loop *loop);
void __wrap_thread_pool_start(struct thread_pool *p, struct thread_loop *loop)
{
    fiber_start(sim.running, run_loop, loop);
}
