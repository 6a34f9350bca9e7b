/* net/message_impl.h - what message.c and message_control.c share. Private to them. */
#ifndef NET_MESSAGE_IMPL_H
#define NET_MESSAGE_IMPL_H
#include "base/status.h"
#include <protobuf-c/protobuf-c.h>

/* An allocator that runs dry: a few bytes on the wire can ask protobuf-c for far more memory. */
struct budget {
    ProtobufCAllocator allocator;
    size_t left;
};
void message_budget_init(struct budget *b);
/* Encoded bytes are malloc'd and given to the caller. ST_NOMEM. */
enum status message_pack(const ProtobufCMessage *message, uint8_t **data, size_t *bytes);

#endif
