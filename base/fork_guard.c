/* base/fork_guard.c - see fork_guard.h. The lock is held while the process forks, so that the child
 * finds a consistent list. */
#include "base/fork_guard.h"
#include "base/guarded.h"
#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while the process forks */
static struct fork_guard *first GUARDED_BY(lock);

static void before_fork(void) ACQUIRES(lock)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void) RELEASES(lock)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void) RELEASES(lock)
{
    for (struct fork_guard *g = first; g; g = g->next)
        g->in_child(g);
    pthread_mutex_unlock(&lock);
}

static void set_up(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

void fork_guard_add(struct fork_guard *g, void (*in_child)(struct fork_guard *g))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    *g = (struct fork_guard){in_child, first, &first};
    if (first)
        first->link = &g->next;
    first = g;
    pthread_mutex_unlock(&lock);
}

void fork_guard_remove(struct fork_guard *g)
{
    pthread_mutex_lock(&lock);
    if (g->link)
        *g->link = g->next;
    if (g->link && g->next)
        g->next->link = g->link;
    g->link = NULL;
    pthread_mutex_unlock(&lock);
}
