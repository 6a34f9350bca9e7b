/* tests/net_tiny.h - a minimal server for tests of net/: it stores the chunks' values, adds 1 to a
 * chunk's version and to its floats for each new PUSH, and violates the protocol on request; and a
 * member of its job, whose model has one parameter. Threads: its lock guards all but the functions'
 * own arguments. */
#ifndef TESTS_NET_TINY_H
#define TESTS_NET_TINY_H
#include "net/exchange/exchange.h"
#include "net/rpc/server.h"
#include <pthread.h>

enum { TINY_CHUNKS = 1024, TINY_ORDER = 4096 };
enum { MODEL_ELEMS = 20000, MODEL_CHUNK_BYTES = 4096, MODEL_CHUNKS = 20 };

struct tiny {
    struct net_server *server;
    int port, n_chunks, n_servers, index;
    const struct chunks *chunks;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct buf *value[TINY_CHUNKS];
    int64_t version[TINY_CHUNKS]; /* -1: none */
    uint64_t incarnation[TINY_CHUNKS];
    int answer;                  /* enum join_answer */
    int generation;              /* pieces of other generations are answered by REBASE */
    struct net_place place;      /* place in replies to joins; n_members 0: none */
    const struct hosts *servers; /* servers in replies to joins, by server 0; NULL: none */
    int64_t end;                 /* not 0: REBASE instead of an answer with this version or later */
    int hold;                    /* drops requests */
    int say_taken;               /* answers pushes that request it by TAKEN, first */
    int retries;                 /* number of joins to answer by RETRY */
    int bad_crc;                 /* number of answers to corrupt */
    int bad_length;              /* number of answers to corrupt */
    int bad_place, bad_stamp;    /* number of answers by reference to corrupt */
    struct segment *segment;     /* NULL: no shared memory; set by tiny_share */
    int kind;                    /* a piece_kind; not 0: answer PUSH by this kind, with `why` */
    uint32_t order[TINY_ORDER];  /* chunks of the first n_push pushes, in the order of arrival */
    int n_rebase;                /* number of pieces answered by REBASE */
    int n_join, n_push, n_duplicate, n_leave, n_closed, n_piece;
    int n_shared;               /* pushes by reference */
    int n_asked;                /* pushes that request TAKEN */
    int n_soon;                 /* requests of members to leave */
    int last_member, last_rank; /* sender of the last join, and of the last frame */
    struct net_stream *held;    /* stream of the last dropped piece */
    struct net_frame_head held_head;
};

void tiny_init(struct tiny *t, const struct chunks *chunks, int index, int n_servers);
/* Puts versions into a segment from now on, which members are offered. */
void tiny_share(struct tiny *t);
/* Listens on t->port of loopback (0: any free port, which it keeps). */
void tiny_start(struct tiny *t);
void tiny_stop(struct tiny *t);
void tiny_free(struct tiny *t);
/* Waits up to 20 s for *counter (one of t's) to reach n. */
void tiny_await(struct tiny *t, const int *counter, int n);
/* Returns one of t's counters or settings, under its lock. */
int tiny_get(struct tiny *t, const int *field);
void tiny_set(struct tiny *t, int *field, int value);
/* Begins a new generation, in which all chunks are at version `step`, each float its number +
 * step. */
void tiny_go_back(struct tiny *t, int64_t step);
/* Begins a planned generation like tiny_go_back, with other servers and another place for the
 * member. */
void tiny_go_on(struct tiny *t, int64_t step, int index, const struct hosts *servers,
                const struct net_place *place);
/* Answers a dropped piece by REBASE. */
void tiny_rebase_late(struct tiny *t, int chunk);
/* Sets the first value of chunk 0: all bytes 7. */
void tiny_fill(struct tiny *t);

/* The member; the test creates its exchange. */
struct tiny_member {
    struct chunks *chunks;
    float *params, *gradient; /* [MODEL_ELEMS] each float is its number at first; ones */
    struct net_exchange *x;
};
void tiny_member_init(struct tiny_member *m);
void tiny_member_free(struct tiny_member *m); /* called after exchange and servers are destroyed */
/* Pushes all chunks' contributions to version `step`, and has them sent. */
void tiny_push_all(struct tiny_member *m, int64_t step);
/* Checks that each of params is its number plus `added`. */
void tiny_assert_params(const struct tiny_member *m, float added);
/* Runs steps until params are at version `to`. */
void tiny_step_on(struct tiny_member *m, int64_t from, int64_t to);

#endif
