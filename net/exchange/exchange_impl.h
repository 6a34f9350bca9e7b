/* net/exchange/exchange_impl.h - the state that the exchange's files share. One lock covers all
 * of it and is never held while gRPC is called. The session (session.h) decides under the lock;
 * its actions are carried out without it. */
#ifndef NET_EXCHANGE_EXCHANGE_IMPL_H
#define NET_EXCHANGE_EXCHANGE_IMPL_H
#include "base/guarded.h"
#include "net/exchange/exchange.h"
#include "net/exchange/link.h"
#include "net/exchange/server_set.h"
#include "net/exchange/session.h"
#include "net/rpc/send_queue.h"
#include "net/wire/lacking.h"
#include <stdbool.h>

/* A chunk's state, and the one request that it may have pending. */
struct exchange_chunk {
    struct net_exchange *x;
    struct send_queue_item item; /* the pending request; kind PIECE_NONE: there is no request */
    bool queued;                 /* the request is in its link's queue */
    size_t in_flight;            /* bytes of the request that count in the link's in_flight */
    int64_t sent_ns;             /* time when the bytes that `in_flight` counts were sent */
    int refs;                    /* payload slices of the request that gRPC still holds */
    bool params_held;            /* the slices that `refs` counts are slices of params */
    float *late;      /* version to copy to params when gRPC holds no slice of them; NULL: none */
    int n_waiters;    /* threads that wait for the chunk to become ready */
    int64_t begin_ns; /* start of the request, for the trace; 0: not traced */
    int64_t version;  /* version in params; -1: none */
    bool ended;       /* the chunk has its last version of this generation */
};

struct net_exchange {
    struct net_exchange_config cfg;
    int n_chunks; /* number of all chunks; the first n_dense are not buckets */
    int n_dense;
    enum dtype push_dtype, version_dtype;
    _Atomic float rate;      /* factor of the learning rate in the next contributions */
    struct segment *segment; /* contributions that servers on this host read in place; NULL: none */
    struct segment *values;  /* lent segment that contains params; NULL: none */
    uint8_t *staged;         /* encoded contributions (chunks_wire_at); NULL: fp32, sent from the
                                caller's buffer */
    /* stages_in_segment: `staged` is a range of `segment`; proposed: wire_auto_propose has measured
     * the line */
    int stages_in_segment, proposed;
    struct residuals *residuals; /* rounding errors of earlier contributions; NULL: the
                                    format keeps none */
    struct exchange_chunk *chunks;
    struct exchange_rows *rows; /* [n_chunks - n_dense] rows of each bucket; NULL: no tables */
    float *averages;            /* flat block of net_exchange_averages; set before its requests */
    uint8_t *lacking; /* marks of each chunk's last contribution (lacking_at); guarded by `lock` */
    int *fragment;    /* fragment of each chunk; NULL: every chunk is in each step (fragments.h) */
    struct grpc_runtime_pollers *pollers;
    pthread_t reconnect_thread;
    int reconnect_runs;

    pthread_mutex_t lock;   /* guards the fields below */
    pthread_cond_t changed; /* the session or a link's calls have changed */
    pthread_cond_t ready;   /* a chunk that a thread waits for, or the session's status, has
                               changed */
    pthread_cond_t work;    /* the reconnect thread has work */
    struct session *session;
    enum status st;  /* error of the session, set after the log line with the reason was written */
    int64_t wake_ns; /* time of the session's next TIMER event */
    int64_t over_asked_ms;    /* silence of ps 0 at the last call of is_over; 0: not called yet */
    bool closing;             /* net_exchange_destroy was called */
    int n_waiting;            /* callers that are in net_exchange_start or _wait */
    _Atomic int64_t waits_ns; /* time when the first of these callers began to wait, or of the
                                 last answer */
    /* time when the last caller's deadline passed; 0: that caller received its answer */
    int64_t left_ns;
    int64_t logged_ns; /* time of the last log line about a server that cannot be
                        reached */
    /* n_begun: STARTs that have ended with a new generation; n_out: STARTs that have ended because
     * the next generation excludes this member; n_left: LEAVEs that have ended */
    int n_begun, n_out, n_left;
    int n_leaves;                        /* pending leave calls */
    int64_t leave_ms;                    /* timeout of each leave call */
    char leave_error[LEAVE_ERROR_BYTES]; /* error that the leave messages contain */
    enum status leave_st;
    int n_links;
    struct link **links;  /* links to the generation's servers; before the first join only
                             to ps 0 */
    int *server;          /* shard map, n_chunks entries; NULL before the first join */
    struct link *retired; /* links that the reconnect thread must destroy */
    /* servers from the answer that the session is processing; NULL: none */
    struct server_set *offered;
    int64_t reached;   /* step that all chunks had reached when the generation ended */
    int values_serial; /* number of the memory in `values`, from 1 on; 0: it is not lent */
    int64_t n_refs;    /* sum of the chunks' refs */
    uint64_t samples;  /* value that net_exchange_samples returns */
    struct net_exchange_stats stats;
};

/* Passes the event to the session and carries out its actions. */
void exchange_session_step(struct net_exchange *x, const struct session_event *e);
void exchange_session_fail(struct net_exchange *x, enum status st);
/* Calls is_over, and returns true if it reports that the job has ended. Releases the lock while
 * is_over runs. */
bool exchange_session_ask_if_over(struct net_exchange *x) REQUIRES(x->lock);
void exchange_begin_wait(struct net_exchange *x); /* notes that a caller waits; under x->lock */
/* Returns the step that all chunks have reached; -1: unknown. Under x->lock. */
int64_t exchange_lowest_version(const struct net_exchange *x);
/* Returns true while a caller waits, also between two slices of a wait: Python waits in slices so
 * that signals are handled. Under x->lock. */
bool exchange_is_waiting(const struct net_exchange *x);
/* Returns true if the chunk has no request and its version is at least `step`. Under x->lock. */
bool exchange_is_ready(const struct exchange_chunk *c, int64_t step);
/* Signals event_fd. The caller holds x->lock. */
void exchange_session_notify(const struct net_exchange *x);
/* Returns the status that requests and waits end with: ST_OK, ST_REBASED, or the error of the
 * session. The caller holds x->lock. */
enum status exchange_session_status(const struct net_exchange *x);

#endif
