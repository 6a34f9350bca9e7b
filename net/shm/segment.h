/* net/shm/segment.h - memory that one program lends to another on the same host, mostly for
 * reading. A message contains only the position of a payload in this memory, which needs few bytes.
 *
 * A segment is an anonymous file (memfd) of fixed size, mapped by its owner. Seals fix the size and
 * allow only the owner to write. When no process has the file open or mapped any more, the kernel
 * frees it. Memory is reserved before use, so that a lack of memory is an error and not a signal.
 * The segment's name, which the owner sends to the peer, consists of a path in /proc and a secret
 * number. A peer that cannot read that path, for example in another container or on another host,
 * cannot open the segment, and receives payloads over TCP.
 *
 * Data that are lent only for a while have a stamp before them. The owner changes the stamp each
 * time before it writes the data. A reader copies the data, and then checks whether the stamp is
 * still the one in the message. If the stamp differs, the owner has already reused the memory, and
 * the copy may contain parts of both.
 *
 * A forked child has no access to a segment: in the child's memory, the segment's bytes are zeros.
 *
 * Owns:    a mapping; the owner's object also owns the descriptor.
 * Threads: any. The users of a segment agree on the meaning of its bytes and on the times of
 *          writing. A peer may be hostile, so the bytes can change while they are read.
 * Errors:  ST_NOMEM, ST_UNSUPPORTED, ST_MISMATCH, with a sentence for the log. The caller continues
 *          without the segment. */
#ifndef NET_SHM_SEGMENT_H
#define NET_SHM_SEGMENT_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEGMENT_NONCE_BYTES = 16, SEGMENT_WHY_BYTES = 160 };
enum { SEGMENT_STAMP_BYTES = 64 }; /* distance from a stamp to its data */

struct segment_name {
    uint32_t pid, fd;
    uint8_t nonce[SEGMENT_NONCE_BYTES];
    uint64_t bytes; /* bytes of data; 0: there is no segment */
};

struct segment;
/* Makes a segment of zeros, which this process may write. */
enum status segment_create(size_t bytes, struct segment **out, char why[SEGMENT_WHY_BYTES]);
/* Makes a segment without memory for its data. The owner may use [offset, offset + bytes) after
 * segment_reserve. */
enum status segment_create_sparse(size_t bytes, struct segment **out, char why[SEGMENT_WHY_BYTES]);
enum status segment_reserve(struct segment *s, size_t offset, size_t bytes,
                            char why[SEGMENT_WHY_BYTES]);
/* Makes a segment of zeros, which this process may write, and one other process that opens it with
 * segment_open_to_write. */
enum status segment_create_lent(size_t bytes, struct segment **out, char why[SEGMENT_WHY_BYTES]);
/* Replaces the memory of a lent segment by a copy at the same address, with a new name. A process
 * that has the previous memory open cannot change the data any more; another one may open the
 * segment to write. No other thread uses the data during the call. Pinned pages must be pinned
 * again. An error changes nothing. */
enum status segment_renew(struct segment *s, char why[SEGMENT_WHY_BYTES]);
/* Lets this process write to a copy of its segment from now on, at the same address. Peers still
 * read the bytes that the segment has now. An error changes nothing. */
enum status segment_detach(struct segment *s, char why[SEGMENT_WHY_BYTES]);
/* Opens the segment of another process for reading. */
enum status segment_open(const struct segment_name *name, struct segment **out,
                         char why[SEGMENT_WHY_BYTES]);
/* Opens a lent segment of another process, to write to it. From then on no other process can open
 * it to write, nor free its memory. */
enum status segment_open_to_write(const struct segment_name *name, struct segment **out,
                                  char why[SEGMENT_WHY_BYTES]);
/* Returns true if another process has opened this process's lent segment to write. */
bool segment_is_claimed(const struct segment *s);
/* Attaches `values` to a peer's segment: another segment of the peer, which this process may write.
 * s receives the reference. */
void segment_set_values(struct segment *s, struct segment *values);
struct segment *segment_values(const struct segment *s); /* NULL: none; no reference */
struct segment *segment_ref(struct segment *s);          /* returns s */
void segment_unref(struct segment *s);                   /* NULL is fine */

/* Writes the name of s; bytes is 0 if s is NULL. */
void segment_name_of(const struct segment *s, struct segment_name *out);
/* Returns the owner's mapping, 64-byte aligned. */
void *segment_data(struct segment *s);
/* Returns the address of [offset, offset + bytes); NULL if that range is not entirely inside the
 * segment, offset is not a multiple of 2, or s is NULL. */
const void *segment_at(const struct segment *s, uint64_t offset, size_t bytes);
/* Returns 1 + the offset of [data, data + bytes) in the segment. Returns 0 if a part of that range
 * is outside the segment, the offset is not a multiple of 2, or s is NULL. */
uint64_t segment_find(const struct segment *s, const void *data, size_t bytes);

/* Returns the stamp of `data`, which is never 0. The owner changes it with segment_restamp before
 * it writes the data. */
uint64_t segment_stamp(const void *data);
void segment_restamp(void *data);

#endif
