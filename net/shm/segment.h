/* net/shm/segment.h - memory that one program lends to another on the same host, to be read:
 * payloads that lie in it cross by reference, a few bytes that say where.
 *
 * A segment is an anonymous file (memfd) of fixed size, sealed so, mapped by its owner, whom alone
 * the seals let write; nothing of it is left when its holders are gone. Its memory is reserved
 * before it is touched: where there is none, that is an error, and no signal. Its name, which the
 * owner tells the peer over the wire, is a place in /proc and a secret number; whoever may not read
 * there, is in another container or on another host cannot open it, and gets its payloads by TCP.
 *
 * What is lent for a while stands behind a stamp, another number each time that it is written anew:
 * a reader that has copied it looks whether the stamp is still the one that it was told. If not, it
 * was taken for gone, and may have read something of both.
 *
 * A forked child has no part in a segment: where it was mapped the child has zeros of its own.
 *
 * Owns:    a mapping, and the owner its descriptor.
 * Threads: any; ref and unref too. What the bytes mean and when they may be written is for the
 *          users to agree on; a peer may be hostile, so what is read can change while it is read.
 * Errors:  ST_NOMEM, ST_UNSUPPORTED, ST_MISMATCH, with a sentence for a line in the log: the
 *          caller goes on without. */
#ifndef NET_SHM_SEGMENT_H
#define NET_SHM_SEGMENT_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { SHARED_NONCE_BYTES = 16, SHARED_WHY_BYTES = 160 };
enum { SHARED_STAMP_BYTES = 64 }; /* from a stamp to what stands behind it */

struct net_shared_name {
    uint32_t pid, fd;
    uint8_t nonce[SHARED_NONCE_BYTES];
    uint64_t bytes; /* of data; 0: there is no segment */
};

struct net_shared;
/* A segment of zeros, to be written by this process. */
enum status net_shared_create(size_t bytes, struct net_shared **out, char why[SHARED_WHY_BYTES]);
/* The same without memory for its data; [offset, offset + bytes) may be touched once reserved. */
enum status net_shared_create_sparse(size_t bytes, struct net_shared **out,
                                     char why[SHARED_WHY_BYTES]);
enum status net_shared_reserve(struct net_shared *s, size_t offset, size_t bytes,
                               char why[SHARED_WHY_BYTES]);
/* Another process' segment, to be read. */
enum status net_shared_open(const struct net_shared_name *name, struct net_shared **out,
                            char why[SHARED_WHY_BYTES]);
struct net_shared *net_shared_ref(struct net_shared *s); /* returns s */
void net_shared_unref(struct net_shared *s);             /* NULL is fine */

/* s: NULL gives bytes 0. */
void net_shared_name_of(const struct net_shared *s, struct net_shared_name *out);
/* The owner's view; 64-byte aligned. */
void *net_shared_data(struct net_shared *s);
/* Where [offset, offset + bytes) lies; NULL if not all of it is inside, or offset is no multiple
 * of 2, or s is NULL. */
const void *net_shared_at(const struct net_shared *s, uint64_t offset, size_t bytes);
/* 1 + the offset of [data, data + bytes) if all of it lies inside at a multiple of 2; else, or
 * if s is NULL, 0. */
uint64_t net_shared_find(const struct net_shared *s, const void *data, size_t bytes);

/* The stamp before `data`; stamped anew: by the owner, before it writes there. Never 0. */
uint64_t net_shared_stamp(const void *data);
void net_shared_restamp(void *data);

#endif
