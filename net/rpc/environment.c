/* net/rpc/environment.c - see environment.h. gRPC uses the first valid word of GRPC_POLL_STRATEGY
 * that works on this system (src/core/lib/iomgr/ev_posix.cc), and aborts if it finds no such
 * word. */
#include "net/rpc/environment.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bounds of the number of threads of gRPC's event engine (src/core/lib/event_engine/thread_pool.h),
 * and the number of its other threads. */
enum { ENGINE_LEAST = 2, ENGINE_MOST = 32, OTHER_THREADS = 5 };

int net_environment_threads(void)
{
    long n = sysconf(_SC_NPROCESSORS_CONF);
    return OTHER_THREADS + (int)(n < ENGINE_LEAST  ? ENGINE_LEAST
                                 : n > ENGINE_MOST ? ENGINE_MOST
                                                   : n);
}

/* Returns the first word of the list that is a strategy of gRPC; NULL: the list has no such
 * word. */
static const char *find_strategy(const char *list)
{
    static const char *const known[] = {"all", "epoll1", "poll"};
    for (const char *word = list; word;) {
        size_t n = strcspn(word, ",");
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strlen(known[i]) == n && memcmp(word, known[i], n) == 0)
                return known[i];
        word = word[n] ? word + n + 1 : NULL;
    }
    return NULL;
}

bool net_environment_is_poll(void)
{
    const char *strategy = find_strategy(getenv("GRPC_POLL_STRATEGY"));
    return strategy && strcmp(strategy, "poll") == 0;
}

enum status net_environment_check(void)
{
    const char *list = getenv("GRPC_POLL_STRATEGY");
    if (!list || find_strategy(list))
        return ST_OK;
    LOG_E(
        "GRPC_POLL_STRATEGY: '%.100s' is not a strategy of gRPC; unset it, or set it to epoll1 or poll",
        list);
    return ST_INVALID;
}
