/* tests/net_tiny.h - a server with almost no mind, for tests of net/: it keeps the chunks' values,
 * adds 1 to a chunk's version and to its floats for each new PUSH, and does on request what a
 * server should not; and a member of its job, whose model has one parameter. Threads: its lock
 * covers all but the functions' own arguments. */
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
    int generation;              /* others' pieces are answered by REBASE */
    struct net_place place;      /* that joins are told; n_members 0: none */
    const struct hosts *servers; /* likewise, by server 0; NULL: none */
    int64_t end;                 /* not 0: REBASE instead of an answer with this version or later */
    int hold;                    /* swallow requests */
    int say_taken;               /* answer pushes that ask for it by TAKEN, first */
    int retries;                 /* joins to answer by RETRY */
    int bad_crc;                 /* answers to corrupt */
    int bad_length;              /* likewise */
    int bad_place, bad_stamp;    /* likewise: of those by reference */
    struct segment *segment;     /* NULL: no shared memory; by tiny_share */
    int kind;                    /* a piece_kind; not 0: answer PUSH by this kind, with `why` */
    uint32_t order[TINY_ORDER];  /* chunks of the first n_push pushes, as they came */
    int n_rebase;                /* pieces so answered */
    int n_join, n_push, n_duplicate, n_leave, n_closed, n_piece;
    int n_shared;               /* pushes by reference */
    int n_asked;                /* pushes that want to hear TAKEN */
    int n_soon;                 /* members that want to leave, so often as they said so */
    int last_member, last_rank; /* of a join, of a frame */
    struct net_stream *held;    /* over which the last piece came that was swallowed */
    struct net_frame_head held_head;
};

void tiny_init(struct tiny *t, const struct chunks *chunks, int index, int n_servers);
/* From now on versions lie in a segment, which members are offered. */
void tiny_share(struct tiny *t);
/* Listens on t->port of loopback (0: any, then kept). */
void tiny_start(struct tiny *t);
void tiny_stop(struct tiny *t);
void tiny_free(struct tiny *t);
/* Waits up to 20 s for *counter (one of t's) to reach n. */
void tiny_await(struct tiny *t, const int *counter, int n);
/* One of t's counters or settings, under its lock. */
int tiny_get(struct tiny *t, const int *field);
void tiny_set(struct tiny *t, int *field, int value);
/* A new generation, in which all chunks are at version `step`, each float its number + step. */
void tiny_go_back(struct tiny *t, int64_t step);
/* A planned generation: as tiny_go_back, with other servers and another place for the member. */
void tiny_go_on(struct tiny *t, int64_t step, int index, const struct hosts *servers,
                const struct net_place *place);
/* Answers a piece that was swallowed by REBASE. */
void tiny_rebase_late(struct tiny *t, int chunk);
/* Gives chunk 0 its first value, all bytes 7. */
void tiny_fill(struct tiny *t);

/* A member's side: its exchange is the test's. */
struct tiny_member {
    struct chunks *chunks;
    float *params, *gradient; /* [MODEL_ELEMS] at first each float its number; ones */
    struct net_exchange *x;
};
void tiny_member_init(struct tiny_member *m);
void tiny_member_free(struct tiny_member *m); /* when exchange and servers are gone */
/* Pushes all chunks' contributions to version `step`, and has them sent. */
void tiny_push_all(struct tiny_member *m, int64_t step);
/* Each of params is its number, and so much more. */
void tiny_assert_params(const struct tiny_member *m, float added);
/* Takes steps until params are at version `to`. */
void tiny_step_on(struct tiny_member *m, int64_t from, int64_t to);

#endif
