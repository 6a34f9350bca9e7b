/* tests/net_tiny.h - a minimal server for tests of net/, and a member of its job, whose model has
 * one parameter. The server stores the chunks' values, adds 1 to a chunk's version and to its
 * floats for each new PUSH, sends its values as averages, and violates the protocol on request.
 * Threads: the server's lock guards all data except the functions' own arguments. */
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
    int64_t version[TINY_CHUNKS]; /* version of each chunk; -1: no version yet */
    uint64_t incarnation[TINY_CHUNKS];
    int answer;                  /* enum join_answer that each join receives */
    int generation;              /* present generation; pieces of others are answered by REBASE */
    struct net_place place;      /* place in replies to joins; n_members 0: no place */
    const struct hosts *servers; /* servers in replies of server 0 to joins; NULL: no list */
    int64_t end;                 /* 0: no end; else REBASE answers requests from this version on */
    int hold;                    /* nonzero: the server drops requests */
    int lose;                    /* nonzero: the server drops requests and counts no pushes */
    int older;                   /* nonzero: a PULL of the version before is answered with it */
    int say_taken;               /* nonzero: TAKEN precedes the answer if the push requests it */
    int retries;                 /* number of the next joins to answer by RETRY */
    int bad_crc;                 /* number of the next answers whose checksum is wrong */
    int bad_length;              /* number of the next answers whose length is wrong */
    int bad_place, bad_stamp;    /* number of the next answers by reference to corrupt */
    struct segment *segment;     /* shared memory of versions, set by tiny_share; NULL: none */
    /* Versions are written to members' values: 1: as the pushes allow; 2: reported for each push,
     * which is a lie; 3: zeros are written instead */
    int writes;
    int n_placed;               /* answers that report a write */
    struct segment *values;     /* values that were written last; NULL: none */
    enum dtype dtype;           /* format of versions, without blocks */
    int kind;                   /* enum piece_kind that answers PUSH, with `why`; 0: as usual */
    uint32_t order[TINY_ORDER]; /* chunks of the first n_push pushes, in the order of arrival */
    int n_rebase;               /* number of pieces answered by REBASE */
    int n_join, n_push, n_duplicate, n_leave, n_closed, n_piece;
    int n_shared;               /* pushes by reference */
    int n_asked;                /* pushes that request TAKEN */
    int n_soon;                 /* requests of members to leave soon */
    float pushed[TINY_CHUNKS];  /* first value of each chunk's last counted push */
    int last_member, last_rank; /* member of the last join, and rank of the last frame */
    /* Processes a piece to a bucket of a table, whose first version is 0; called without the lock.
     */
    void (*on_rows)(struct tiny *t, struct net_stream *stream, const struct net_frame_head *head,
                    const struct net_piece *piece);
    void *rows;              /* state of on_rows */
    struct net_stream *held; /* stream of the last dropped piece */
    struct net_frame_head held_head;
};

void tiny_init(struct tiny *t, const struct chunks *chunks, int index, int n_servers);
/* Puts versions into a segment from now on, and offers this segment to members. */
void tiny_share(struct tiny *t);
/* Listens on t->port of loopback. Port 0 is replaced by a free port, which the server keeps. */
void tiny_start(struct tiny *t);
void tiny_stop(struct tiny *t);
void tiny_free(struct tiny *t);
/* Waits up to 20 s for *counter (one of t's) to reach n. */
void tiny_await(struct tiny *t, const int *counter, int n);
/* Returns a counter or setting of t, which it reads under t's lock. */
int tiny_get(struct tiny *t, const int *field);
void tiny_set(struct tiny *t, int *field, int value);
/* Begins a new generation, in which all chunks are at version `step`. The value of each float is
 * its index + step. */
void tiny_go_back(struct tiny *t, int64_t step);
/* Creates a buffer for the chunk's next version, in the segment if there is one. The caller holds
 * the lock. */
enum status tiny_new_buf(struct tiny *t, int chunk, size_t bytes, struct buf **out);
/* Begins a new generation without values, as servers that have lost the parameters. */
void tiny_forget(struct tiny *t);
/* Begins a planned generation like tiny_go_back, with other servers, and with another place for the
 * member. */
void tiny_go_on(struct tiny *t, int64_t step, int index, const struct hosts *servers,
                const struct net_place *place);
/* Answers the last dropped piece by REBASE. */
void tiny_rebase_late(struct tiny *t, int chunk);
/* Sets all bytes of the first value of chunk 0 to 7. */
void tiny_fill(struct tiny *t);

/* The member of the job. The test creates its exchange. */
struct tiny_member {
    struct chunks *chunks;
    float *params, *gradient; /* [MODEL_ELEMS] each float is its index at first; ones */
    struct net_exchange *x;
};
void tiny_member_init(struct tiny_member *m);
void tiny_member_free(struct tiny_member *m); /* after its exchange and the servers are destroyed */
/* Pushes the contributions of all chunks at version `step`, and has them sent. */
void tiny_push_all(struct tiny_member *m, int64_t step);
/* Checks that the value of each parameter is its index plus `added`. */
void tiny_assert_params(const struct tiny_member *m, float added);
/* Runs steps from version `from` until the parameters are at version `to`. */
void tiny_step_on(struct tiny_member *m, int64_t from, int64_t to);

#endif
