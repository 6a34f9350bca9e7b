/* net/wire/message.h - converts the control messages (join, leave) between protobuf-c and plain
 * structs. Input from a peer is bounded: a decoder uses at most MESSAGE_MAX_MEMORY.
 * Owns:    nothing.
 * Threads: any.
 * Errors:  ST_PROTOCOL (cannot be decoded), ST_INVALID (a value is out of bounds), both with a
 *          sentence in `why` and not logged, because the caller has the peer's name; ST_NOMEM. */
#ifndef NET_WIRE_MESSAGE_H
#define NET_WIRE_MESSAGE_H
#include "net/wire/control.h"
#include "net/wire/fetch.h"
#include "net/wire/gate.h"
#include "net/wire/job.h"
#include "net/wire/squares.h"
#include "net/wire/status.h"
#include <stddef.h>
#include <stdint.h>

/* MESSAGE_PROTOCOL increases with each change that an older program would misunderstand or ignore.
 * Each request contains its sender's number; the receiver refuses another number with a sentence
 * that names both. The numbers so far, and the content that each of them added: 2 plans, stops,
 * TAKEN, status and commands, fetches 3 the ps 0 of a plan 4 contributions of weight 0; schedules,
 * clipping and the data set in the job 5 regions 6 gates in plans: regions of several servers;
 * fragments in the job 7 factors of the learning rate and weight decay 8 tables in the job 9 rows
 * of bf16
 *
 * Reports are an exception, since only operators read them: if a field of a report changes its
 * meaning, it has a new field number from then on, and a program without the new field shows or
 * sends less. */
enum { MESSAGE_MAX_MEMORY = 64 << 20, MESSAGE_PROTOCOL = 9, MESSAGE_WHY_BYTES = 512 };

/* Encodes and decodes a message. The caller owns the encoded bytes, which are malloc'd, and the
 * memory that a decoded message points to. MESSAGE(leave, struct net_leave) declares
 * message_leave_pack() and message_leave_unpack(); the table of a type's fields is in the
 * message_*.c that defines it (message_rows.h). */
struct message_type;
enum status message_pack(const struct message_type *type, const void *plain, uint8_t **data,
                         size_t *bytes);
enum status message_unpack(const struct message_type *type, const uint8_t *data, size_t bytes,
                           void *plain, char why[MESSAGE_WHY_BYTES]);
#define MESSAGE(name, plain)                                                                       \
    extern const struct message_type message_##name;                                               \
    static inline enum status message_##name##_pack(const plain *from, uint8_t **data,             \
                                                    size_t *bytes)                                 \
    {                                                                                              \
        return message_pack(&message_##name, from, data, bytes);                                   \
    }                                                                                              \
    static inline enum status message_##name##_unpack(const uint8_t *data, size_t bytes,           \
                                                      plain *to, char why[MESSAGE_WHY_BYTES])      \
    {                                                                                              \
        return message_unpack(&message_##name, data, bytes, to, why);                              \
    }
MESSAGE(reply, struct net_join_reply)
MESSAGE(leave, struct net_leave)
/* freed by message_control_free; the following types have functions with such names, too */
MESSAGE(control, struct net_control)
MESSAGE(control_reply, struct net_control_reply)
MESSAGE(status_request, struct net_status_request)
MESSAGE(status, struct net_status)
MESSAGE(command, struct net_command)
MESSAGE(command_reply, struct net_command_reply)
MESSAGE(evaluation, struct net_evaluation)
MESSAGE(evaluation_reply, struct net_evaluation_reply)
MESSAGE(fetch, struct net_fetch_request)
MESSAGE(squares, struct net_squares)
MESSAGE(squares_reply, struct net_squares_reply)
MESSAGE(gate, struct net_gate) /* answered by a squares_reply */

enum status message_join_pack(const struct net_join *join, uint8_t **data, size_t *bytes);
/* Decodes a join. *chunks holds the table of join->chunks; the caller destroys it, and frees the
 * join's texts. */
enum status message_join_unpack(const uint8_t *data, size_t bytes, struct net_join *join,
                                struct chunks **chunks, char why[MESSAGE_WHY_BYTES]);
void message_join_free(struct net_join *join); /* a struct of zeros is fine */

enum status message_fetch_reply_pack(const struct net_fetch_reply *reply, uint8_t **data,
                                     size_t *bytes);
/* Chunks that were requested, the function that receives each of them, and the number received so
 * far. */
struct message_fetched {
    int n;
    const int *chunk;
    enum status (*receive)(void *ctx, const struct net_fetched *chunk);
    void *ctx;
    int n_received; /* complete chunks */
    /* Cursor. Before a call: that of the request. After it: that of the next request. */
    bool has_after;
    uint64_t after;
};
/* Decodes a reply, and calls to->receive for each chunk. Further errors: ST_REFUSED, ST_CORRUPT,
 * and any error of `receive`. */
enum status message_fetch_reply_unpack(const uint8_t *data, size_t bytes,
                                       struct message_fetched *to, char why[MESSAGE_WHY_BYTES]);

/* For health checks: decodes the name of the requested service (at most room - 1 bytes), and
 * encodes an answer. */
enum health_status { HEALTH_SERVING = 1, HEALTH_NOT_SERVING = 2, HEALTH_SERVICE_UNKNOWN = 3 };
enum status message_health_unpack(const uint8_t *data, size_t bytes, char *service, size_t room);
enum status message_health_pack(enum health_status status, uint8_t **data, size_t *bytes);

#endif
