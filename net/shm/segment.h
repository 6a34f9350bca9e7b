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

enum { SEGMENT_NONCE_BYTES = 16, SEGMENT_WHY_BYTES = 160 };
enum { SEGMENT_STAMP_BYTES = 64 }; /* from a stamp to what stands behind it */

struct segment_name {
    uint32_t pid, fd;
    uint8_t nonce[SEGMENT_NONCE_BYTES];
    uint64_t bytes; /* of data; 0: there is no segment */
};

struct segment;
/* A segment of zeros, to be written by this process. */
enum status segment_create(size_t bytes, struct segment **out, char why[SEGMENT_WHY_BYTES]);
/* The same without memory for its data; [offset, offset + bytes) may be touched once reserved. */
enum status segment_create_sparse(size_t bytes, struct segment **out, char why[SEGMENT_WHY_BYTES]);
enum status segment_reserve(struct segment *s, size_t offset, size_t bytes,
                            char why[SEGMENT_WHY_BYTES]);
/* Another process' segment, to be read. */
enum status segment_open(const struct segment_name *name, struct segment **out,
                         char why[SEGMENT_WHY_BYTES]);
struct segment *segment_ref(struct segment *s); /* returns s */
void segment_unref(struct segment *s);          /* NULL is fine */

/* s: NULL gives bytes 0. */
void segment_name_of(const struct segment *s, struct segment_name *out);
/* The owner's view; 64-byte aligned. */
void *segment_data(struct segment *s);
/* Where [offset, offset + bytes) lies; NULL if not all of it is inside, or offset is no multiple
 * of 2, or s is NULL. */
const void *segment_at(const struct segment *s, uint64_t offset, size_t bytes);
/* 1 + the offset of [data, data + bytes) if all of it lies inside at a multiple of 2; else, or
 * if s is NULL, 0. */
uint64_t segment_find(const struct segment *s, const void *data, size_t bytes);

/* The stamp before `data`; stamped anew: by the owner, before it writes there. Never 0. */
uint64_t segment_stamp(const void *data);
void segment_restamp(void *data);

#endif
