/* ps/service_impl.h - what service.c (pieces and streams), people.c (who joins and leaves, who is
 * waited for) and generation.c (one run after the other) share; private to them.
 *
 * Locks: the service's guards runs' members and is never held over a call into the store's chunks
 * or the net. A stream's (in streams.h) may be held when the service's is taken, never the other
 * way round. `change` is held over a whole begin, outside the service's. */
#ifndef PS_SERVICE_IMPL_H
#define PS_SERVICE_IMPL_H
#include "ps/run.h"
#include "ps/service.h"
#include "ps/stragglers.h"
#include "ps/streams.h"
#include "ps/waiting.h"
#include <pthread.h>

struct ps_service {
    struct ps_service_config cfg; /* with an address */
    struct ps_streams *streams;
    pthread_mutex_t change; /* one begin at a time */
    pthread_mutex_t lock;   /* guards run, the members in it, and all below up to the ticker */
    pthread_cond_t wake;
    struct run *_Atomic run; /* NULL before the first plan; written under the lock */
    int stopping;
    struct ps_waiting waiting;
    uint64_t *removed; /* incarnations of members that somebody had removed */
    int n_removed;
    struct ps_late_total *late; /* of the job's earlier generations, by index */
    int n_late;
    pthread_t ticker;
    int has_ticker;
    struct ps_gather *gather; /* of the begin under way */
    _Atomic uint64_t received_bytes, sent_bytes;
};

/* service.c */
void service_answer(void *ctx, const struct net_frame_head *head, uint64_t from,
                    const struct ps_answer *a);
void service_people_changed(void *ctx);

/* people.c: of the handler. */
void service_join(void *ctx, const struct net_join *req, const char *peer,
                  struct net_join_reply *reply);
void service_leave(void *ctx, const struct net_leave *leave);
/* A stream has closed: its member has none now. */
void service_forget_stream(struct ps_service *s, uint64_t stream);
void *service_ticker_main(void *arg);

/* generation.c */
/* Of the handler. */
void service_fetch(void *ctx, const struct net_fetch_request *request,
                   struct net_fetch_reply *reply);
/* Gives back a reference to a run, and to each that is kept behind it. NULL is fine. */
void service_let_go(struct run *r);
/* 1 if all members are done, for the first time. Under the lock. */
int service_end_run(struct run *r);
/* The first plan, from what the first member brings, where nobody else makes plans. ST_OK also if
 * there is one already; else a sentence in `why`. */
enum status service_first_plan(struct ps_service *s, const struct net_join *req, char *why,
                               size_t why_bytes);
/* The job is done: its lines, and done. */
void service_tell_done(struct ps_service *s, struct run *r);

#endif
