/* net/wire/message_impl.h - functions that the files message*.c share. Only these files include
 * it. */
#ifndef NET_WIRE_MESSAGE_IMPL_H
#define NET_WIRE_MESSAGE_IMPL_H
#include "net/wire/message.h"
#include "net/wire/message_rows.h"
#include "net/wire/plan.h"
#include "net/wire/region.pb-c.h"
#include "net/wire/weir.pb-c.h"
#include <stdbool.h>

/* Highest step, position and generation. No training reaches it, and the sum of two such numbers
 * does not overflow. */
#define MESSAGE_MAX_STEP ((int64_t)1 << 62)

/* Allocator that allocates at most `left` further bytes. A message of a few bytes could otherwise
 * make the decoder allocate far more memory. */
struct budget {
    ProtobufCAllocator allocator;
    size_t left;
};
/* Decodes the bytes and returns a struct of protobuf-c, which protobuf_c_message_free_unpacked()
 * frees with the budget's allocator. Returns NULL with a sentence in `why` if the bytes are not
 * valid: ST_PROTOCOL. */
void *message_decode(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t bytes,
                     struct budget *b, char why[MESSAGE_WHY_BYTES]);
/* Encodes a struct of protobuf-c into malloc'd bytes, which the caller owns. ST_NOMEM. */
enum status message_encode(const void *wire, uint8_t **data, size_t *bytes);

/* Returns zeroed memory for a hook, which is freed together with the struct message_room; NULL: no
 * memory. */
void *message_alloc(struct message_room *room, size_t n, size_t bytes);
/* Reads and writes a message that is part of another message. *wire belongs to the struct
 * message_room. */
enum status message_read(const struct message_type *type, const void *wire, void *plain, char *why);
enum status message_write(const struct message_type *type, const void *plain,
                          struct message_room *room, void **wire);
/* Writes the fields of another table into a message. */
enum status message_fill(const struct message_type *type, const void *plain,
                         struct message_room *room, void *wire);
/* Frees the memory of a struct that was read, and sets its pointers to NULL. */
void message_release(const struct message_type *type, void *plain);
/* Writes the sentence; returns ST_INVALID. */
enum status message_invalid(char why[MESSAGE_WHY_BYTES], const char *text);
/* Returns `list` as a list of uint32_t, without copying: an int that is not negative has the same
 * bits as the wire's uint32. */
static inline uint32_t *message_numbers(const int *list)
{
    return (uint32_t *)(uintptr_t)list;
}

/* Reads a job, with its table of parameters; `from` NULL is refused. n_workers is 0 if the field is
 * absent. */
enum status message_job_read(const Weir__V1__Job *from, struct net_job *job, struct chunks **chunks,
                             char why[MESSAGE_WHY_BYTES]);
enum status message_job_write(const struct net_job *job, const struct chunks *chunks,
                              struct message_room *room, Weir__V1__Job **out);
/* Reads the model in a job. *text: malloc'd, and the caller frees it; may become NULL. */
enum status message_job_read_model(const Weir__V1__Job *from, char **text, int *hidden_units,
                                   char why[MESSAGE_WHY_BYTES]);
void message_job_write_model(const char *text, int hidden_units, Weir__V1__Job *to);

/* Reads the tables of a job, and adds their buckets to the chunks; total_steps: steps of the job's
 * optimizer. Writes them into a job. */
enum status message_tables_read(const Weir__V1__Job *from, uint64_t total_steps,
                                struct chunks *chunks, char why[MESSAGE_WHY_BYTES]);
enum status message_tables_write(const struct chunks *chunks, struct message_room *room,
                                 Weir__V1__Job *to);

bool message_evaluation_is_accuracy(double x); /* returns true for an accuracy or NaN */

extern const struct message_type message_plan; /* type of a struct net_plan */
/* Reads n numbers of servers, each below `below`; NULL for n = 0. */
enum status message_plan_read_map(const uint32_t *from, size_t n, int below, int **out,
                                  char why[MESSAGE_WHY_BYTES]);

#endif
