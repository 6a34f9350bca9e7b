/* net/message_impl.h - what the files that code messages share. Private to them. */
#ifndef NET_MESSAGE_IMPL_H
#define NET_MESSAGE_IMPL_H
#include "net/message.h"
#include "net/weir.pb-c.h"

/* An allocator that runs dry: a few bytes on the wire can ask protobuf-c for far more memory. */
struct budget {
    ProtobufCAllocator allocator;
    size_t left;
};
void message_budget_init(struct budget *b);
/* Encoded bytes are malloc'd and given to the caller. ST_NOMEM. */
enum status message_pack(const ProtobufCMessage *message, uint8_t **data, size_t *bytes);
/* ST_INVALID, with the sentence in `why`. */
enum status message_invalid(char why[MESSAGE_WHY_BYTES], const char *text);

/* A job on its way out: the message and what it points to, which points to the job and chunks. */
struct message_job {
    Weir__V1__Job wire;
    Weir__V1__Optimizer optimizer;
    Weir__V1__Parameter *params, **list;
    uint64_t *dims;
};
/* ST_NOMEM. */
enum status message_job_to_wire(const struct net_job *job, const struct chunks *chunks,
                                struct message_job *out);
void message_job_free(struct message_job *job);
/* *chunks: created, the caller's. ST_INVALID, ST_NOMEM. */
enum status message_job_from_wire(const Weir__V1__Job *from, struct net_job *job,
                                  struct chunks **chunks, char why[MESSAGE_WHY_BYTES]);

#endif
