/* tests/sim/fiber.c - see fiber.h. A stack begins by setcontext(). After that, the fiber on it and
 * the world jump to each other, which saves the two system calls of swapcontext(). If a fiber has
 * ended, the next fiber in its place also begins on the same stack by a jump. */
#include "tests/sim/fiber.h"
#include "base/guarded.h"
#include "tests/sim/sim.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

/* waits of a fiber of a dying node after which all deadlines have passed */
enum { MANY_HURRIED = 50 };
enum { STACK_BYTES = 512 << 10, MAX_FIBERS = 128, WAIT_SLOTS = 128 };

struct fiber {
    int node;
    bool is_done;
    bool hurries;   /* the fiber's node dies */
    int n_hurried;  /* number of the fiber's waits since then, which returned at once */
    int index;      /* place of the fiber in `fibers` */
    int64_t number; /* number of the fiber's wait, from next_number() */
    bool is_posted; /* the fiber was woken, and its timer is posted */
    void *(*fn)(void *arg);
    void *arg;
};

/* Place for a jump by the compiler's own functions. They save neither signals nor registers that
 * the function does not use, and unlike the C library's functions they do not check the stack. */
typedef void *jump_place[5];

/* A new fiber reuses the place of a fiber that is done, and its stack. */
static struct fiber *fibers[MAX_FIBERS], *running;
/* object that each fiber waits for; NULL: none, or the fiber waits only for a time */
static const void *waits_on[MAX_FIBERS];
static unsigned __int128 waiting[WAIT_SLOTS]; /* bits of fibers that wait, by object's slot */
static struct stack {
    char *bytes;
    /* is_amid: the stack continues at `jump` amid a fiber, and not between two fibers */
    bool has_begun, is_amid;
    jump_place jump;
} stacks[MAX_FIBERS];
static int n_fibers;
static int64_t n_waits;
static jump_place world;

/* Functions of AddressSanitizer, if it is linked in: they name the stack that is used next. */
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t bytes)
    __attribute__((weak));
void __sanitizer_finish_switch_fiber(void *save, const void **bottom, size_t *bytes)
    __attribute__((weak));
static void *world_save;
static const void *world_bottom;
static size_t world_bytes;

static void finish_switch(void *save, const void **bottom, size_t *bytes)
{
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(save, bottom, bytes);
}

__attribute__((noinline, noreturn)) static void jump_to(jump_place to)
{
    __builtin_longjmp(to, 1);
}

/* Jumps from the running fiber to the world; is_last: the fiber never continues. A macro, because
 * the processor does not predict where a function returns to after a switch of stacks. */
#define TO_WORLD(is_last)                                                                          \
    do {                                                                                           \
        void *save_ = NULL;                                                                        \
        if (__sanitizer_start_switch_fiber)                                                        \
            __sanitizer_start_switch_fiber((is_last) ? NULL : &save_, world_bottom, world_bytes);  \
        if (__builtin_setjmp(stacks[running->index].jump) == 0)                                    \
            jump_to(world);                                                                        \
        finish_switch(save_, &world_bottom, &world_bytes);                                         \
    } while (0)

__attribute__((noinline)) static void to_world(bool is_last)
{
    TO_WORLD(is_last);
}

static void main_of_fiber(void)
{
    finish_switch(NULL, &world_bottom, &world_bytes);
    for (;;) {
        stacks[running->index].is_amid = true;
        running->fn(running->arg);
        stacks[running->index].is_amid = false;
        running->is_done = true;
        to_world(false);
    }
}

/* noreturn, so that the compiler keeps the caller's frame, which the jump to `world` needs. Before
 * a last call that can return, clang frees the frame. */
__attribute__((noreturn)) static void begin_stack(struct stack *s)
{
    static ucontext_t context; /* no local variable: this function never returns */
    s->has_begun = true;
    CHECK(getcontext(&context) == 0);
    context.uc_stack.ss_sp = s->bytes;
    context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&context, main_of_fiber, 0);
    setcontext(&context);
    abort();
}

/* Jumps to the fiber, and returns when it jumps back. */
__attribute__((noinline)) static void run_fiber(struct fiber *f)
{
    struct stack *s = &stacks[f->index];
    running = f;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(&world_save, s->bytes, STACK_BYTES);
    if (__builtin_setjmp(world) == 0) {
        if (s->has_begun)
            jump_to(s->jump);
        begin_stack(s);
    }
    finish_switch(world_save, NULL, NULL);
    struct fiber *ran = running;
    running = NULL;
    if (ran->is_done)
        fiber_wake(ran);
    if (sim.check) /* a check failed in the fiber */
        longjmp(sim.leave, 1);
}

static void place_fiber(struct fiber *f)
{
    int i = 0;
    while (i < n_fibers && !fibers[i]->is_done)
        i++;
    if (i == MAX_FIBERS)
        sim_fail("bound", "more threads at a time than a run can have");
    n_fibers += i == n_fibers;
    if (!stacks[i].bytes)
        stacks[i].bytes = malloc(STACK_BYTES);
    CHECK(stacks[i].bytes);
    fibers[i] = f;
    waits_on[i] = NULL;
    f->index = i;
}

/* Returns a number that no other wait of the run has. A timer finds the fiber by this number. */
static int64_t next_number(const struct fiber *f)
{
    return ++n_waits * MAX_FIBERS + f->index;
}

static void post_fiber(struct fiber *f, int64_t delay)
{
    f->is_posted = true;
    sim_timer(f->node, delay, TIMER_FIBER, f->number);
}

static int64_t a_little(int node)
{
    return sim_below(&sim.node[node].random, 300) * 1000;
}

struct fiber *fiber_start(int node, void *(*fn)(void *arg), void *arg)
{
    struct fiber *f = sim_alloc(sizeof *f);
    place_fiber(f);
    f->node = node;
    f->fn = fn;
    f->arg = arg;
    f->number = next_number(f);
    post_fiber(f, a_little(node));
    return f;
}

/* Returns a later time after each MANY_HURRIED waits of a fiber of a dying node, because the time
 * of the run stands still until all its fibers have ended. */
int64_t fiber_now_ns(void)
{
    const int64_t late = 3600 * SIM_S;
    return running ? sim.now + running->n_hurried / MANY_HURRIED * late : sim.now;
}

bool fiber_is_running(void)
{
    return running != NULL;
}

void fiber_timer(int64_t number)
{
    struct fiber *f = fibers[number % MAX_FIBERS];
    if (f->number == number && !f->is_done)
        run_fiber(f);
}

static unsigned __int128 *waiting_for(const void *on)
{
    return &waiting[(uintptr_t)on / 16 % WAIT_SLOTS];
}

/* Waits in a fiber of a dying node: it may wait for the end of another fiber. */
static bool wait_hurried(void)
{
    to_world(false);
    return ++running->n_hurried < MANY_HURRIED;
}

__attribute__((noinline)) bool fiber_wait(const void *on, int64_t until_ns)
{
    struct fiber *f = running;
    if (f->hurries)
        return wait_hurried();
    waits_on[f->index] = on;
    *waiting_for(on) |= (unsigned __int128)1 << f->index;
    f->is_posted = false;
    f->number = next_number(f);
    if (until_ns != INT64_MAX)
        sim_timer(f->node, until_ns > sim.now ? until_ns - sim.now : 0, TIMER_FIBER, f->number);
    TO_WORLD(false);
    f = running;
    waits_on[f->index] = NULL;
    *waiting_for(on) &= ~((unsigned __int128)1 << f->index);
    f->number = 0;
    return f->is_posted;
}

static void wake_of(uint64_t bits, int first, const void *on)
{
    for (; bits; bits &= bits - 1) {
        int i = first + __builtin_ctzll(bits);
        if (waits_on[i] == on && !fibers[i]->is_done && !fibers[i]->is_posted)
            post_fiber(fibers[i], a_little(fibers[i]->node));
    }
}

void fiber_wake(const void *on)
{
    unsigned __int128 bits = *waiting_for(on);
    if (!bits)
        return;
    wake_of((uint64_t)bits, 0, on);
    wake_of((uint64_t)(bits >> 64), 64, on);
}

void fiber_pause(void)
{
    struct sim_random *r = running ? &sim.node[running->node].random : NULL;
    if (!r || running->hurries || !sim_chance(r, 30))
        return;
    fiber_wait(running, sim.now + sim_below(r, sim_chance(r, 10) ? 50 * SIM_MS : SIM_MS));
}

void fibers_end(int node)
{
    for (bool are_left = true; are_left;) {
        are_left = false;
        for (int i = 0; i < n_fibers; i++) {
            struct fiber *f = fibers[i];
            if (f->node != node || f->is_done)
                continue;
            f->hurries = are_left = true;
            run_fiber(f);
        }
    }
}

void fiber_leave(void)
{
    if (running)
        to_world(true);
}

void fibers_reset(void)
{
    for (int i = 0; i < n_fibers; i++) {
        stacks[i].has_begun &= !stacks[i].is_amid; /* a check failed: such fibers never end */
        stacks[i].is_amid = false;
    }
    memset(waiting, 0, sizeof waiting);
    n_fibers = 0;
    running = NULL;
}

/* Runs the threads of production code as fibers. */
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    *t = (pthread_t)(uintptr_t)fiber_start(sim.running, fn, arg);
    return 0;
}

int __wrap_pthread_join(pthread_t t, void **out);
int __wrap_pthread_join(pthread_t t, void **out)
{
    struct fiber *f = (struct fiber *)(uintptr_t)t; // NOLINT(performance-no-int-to-ptr)
    while (!f->is_done)
        fiber_wait(f, INT64_MAX);
    return 0;
}

int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) REQUIRES(*m)
{
    CHECK(running);
    pthread_mutex_unlock(m);
    fiber_wait(c, INT64_MAX);
    pthread_mutex_lock(m);
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *until) REQUIRES(*m)
{
    CHECK(running);
    pthread_mutex_unlock(m);
    bool woken = fiber_wait(c, (int64_t)until->tv_sec * SIM_S + until->tv_nsec);
    pthread_mutex_lock(m);
    return woken ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
    fiber_wake(c);
    return 0;
}

/* Wakes all fibers that wait for the condition: a condition may wake too many threads, so each
 * fiber checks again whether it may continue. */
int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
    fiber_wake(c);
    return 0;
}

int __real_pthread_detach(pthread_t t);
int __wrap_pthread_detach(pthread_t t);
int __wrap_pthread_detach(pthread_t t)
{
    return 0;
}

/* A mutex is its first word, which is 0 while the mutex is free; more is not needed, because all
 * fibers run in one thread. A fiber may wait while it holds a mutex, as in a call of the disk; the
 * world cannot wait for a mutex. */
static int *word_of(pthread_mutex_t *m)
{
    return (int *)m;
}

int __real_pthread_mutex_trylock(pthread_mutex_t *m);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *m);
UNCHECKED_LOCKS int __wrap_pthread_mutex_trylock(pthread_mutex_t *m)
{
    if (*word_of(m))
        return EBUSY;
    *word_of(m) = 1;
    return 0;
}

int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
UNCHECKED_LOCKS int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    while (*word_of(m)) {
        if (!running)
            sim_fail("bound", "a handler needs a lock that a waiting thread holds");
        fiber_wait(m, sim.now + 10000);
    }
    *word_of(m) = 1;
    return 0;
}

int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
UNCHECKED_LOCKS int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
    *word_of(m) = 0;
    return 0;
}

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    CHECK(running);
    fiber_wait(running, sim.now + (int64_t)time->tv_sec * SIM_S + time->tv_nsec);
    return 0;
}

/* Ignores priorities: all fibers run in one thread. */
int __wrap_setpriority(int which, unsigned who, int value);
int __wrap_setpriority(int which, unsigned who, int value)
{
    return 0;
}
