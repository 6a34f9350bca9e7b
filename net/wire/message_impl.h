/* net/wire/message_impl.h - what the message*.c share. Private to them. */
#ifndef NET_WIRE_MESSAGE_IMPL_H
#define NET_WIRE_MESSAGE_IMPL_H
#include "net/wire/message.h"
#include "net/wire/message_rows.h"
#include "net/wire/plan.h"
#include "net/wire/region.pb-c.h"
#include "net/wire/weir.pb-c.h"

/* Of steps, positions and generations: beyond any training, and sums of two do not overflow. */
#define MESSAGE_MAX_STEP ((int64_t)1 << 62)

/* An allocator that runs dry: a few bytes on the wire can ask protobuf-c for far more memory. */
struct budget {
    ProtobufCAllocator allocator;
    size_t left;
};
void message_budget_init(struct budget *b);
/* Returns the struct that protobuf-c decodes, which protobuf_c_message_free_unpacked() frees with
 * the budget's allocator; NULL, with a sentence in why: ST_PROTOCOL. */
void *message_decode(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t bytes,
                     struct budget *b, char why[MESSAGE_WHY_BYTES]);
/* Encoded bytes are malloc'd and given to the caller. ST_NOMEM. */
enum status message_encode(const void *wire, uint8_t **data, size_t *bytes);
/* Returns zeros that are freed with the room; NULL: no memory. */
void *message_take(struct message_room *room, size_t n, size_t bytes);
/* Reads and writes a message that is part of another. *wire lies in the room. */
enum status message_read(const struct message_type *type, const void *wire, void *plain, char *why);
enum status message_write(const struct message_type *type, const void *plain,
                          struct message_room *room, void **wire);
/* Frees what a struct that was read points to, and sets those pointers to NULL. */
void message_release(const struct message_type *type, void *plain);
/* Whether a request's sender speaks this program's protocol; ST_INVALID. */
enum status message_check_protocol(uint32_t theirs, char why[MESSAGE_WHY_BYTES]);
/* What a peer wrote goes to terminals and into JSON: '?' for each byte that is no printable UTF-8;
 * cut to fit, before a character. */
void message_text_in(const char *from, char *to, size_t room);
/* Writes the sentence; returns ST_INVALID. */
enum status message_invalid(char why[MESSAGE_WHY_BYTES], const char *text);

/* A job as protobuf-c wants it; it borrows from the job and the chunks it was made of. ST_NOMEM. */
struct message_job {
    Weir__V1__Job wire;
    Weir__V1__Optimizer optimizer, local;
    Weir__V1__DataSet data;
    Weir__V1__Validation validation;
    uint32_t data_dims[3];
    char augment[JOB_AUGMENT_BYTES];
    Weir__V1__Parameter *params, **list;
    uint64_t *dims;
};
enum status message_job_to_wire(const struct net_job *job, const struct chunks *chunks,
                                struct message_job *out);
void message_job_free(struct message_job *j);
/* message_data.c: of a job. Nothing is written, and nothing read, where nothing is said. */
void message_data_to_wire(const struct job_data *from, struct message_job *to);
enum status message_data_from_wire(const Weir__V1__DataSet *from, struct job_data *to,
                                   char why[MESSAGE_WHY_BYTES]);
void message_data_validation_to_wire(const struct net_validation *from, struct message_job *to);
enum status message_data_validation_from_wire(const Weir__V1__Validation *from,
                                              struct net_validation *to,
                                              char why[MESSAGE_WHY_BYTES]);
enum status message_data_arithmetic_from_wire(const char *from, char to[JOB_ARITHMETIC_BYTES],
                                              char why[MESSAGE_WHY_BYTES]);
void message_data_normal_to_wire(const struct job_normal *from, Weir__V1__Job *to);
enum status message_data_normal_from_wire(const Weir__V1__Job *from, struct job_normal *to,
                                          char why[MESSAGE_WHY_BYTES]);
enum status message_data_augment_from_wire(const char *from, struct job_augment *to,
                                           char why[MESSAGE_WHY_BYTES]);
/* from: NULL is refused. n_workers is 0 if it was not said. */
enum status message_job_from_wire(const Weir__V1__Job *from, struct net_job *job,
                                  struct chunks **chunks, char why[MESSAGE_WHY_BYTES]);
/* "" is fp32. 0: there is none of that name. */
int message_job_dtype_from_wire(const char *name, enum dtype *out);
/* The model in a job; text may be NULL, here and there. *text: malloc'd, the caller's. ST_INVALID,
 * ST_NOMEM. */
void message_job_model_to_wire(const char *text, int hidden_units, Weir__V1__Job *to);
enum status message_job_model_from_wire(const Weir__V1__Job *from, char **text, int *hidden_units,
                                        char why[MESSAGE_WHY_BYTES]);

/* message_evaluation.c. 0: it cannot be. */
void message_evaluation_best_to_wire(const struct net_best *from, uint64_t *best, double *loss,
                                     double *accuracy);
int message_evaluation_is_accuracy(double x); /* or NaN */
int message_evaluation_best_from_wire(uint64_t best, double loss, double accuracy,
                                      struct net_best *to);

/* The list itself: an int and the wire's uint32 look alike where the value is not negative. */
uint32_t *message_plan_map_to_wire(const int *list);
/* Numbers of servers from the wire, n of them, each below `below`; NULL for n = 0. */
enum status message_plan_map_from_wire(const uint32_t *from, size_t n, int below, int **out,
                                       char why[MESSAGE_WHY_BYTES]);
enum status message_plan_hosts_from_wire(char *const *from, size_t n, struct hosts *out,
                                         char why[MESSAGE_WHY_BYTES]);

/* A plan as protobuf-c wants it, likewise. */
struct message_plan {
    Weir__V1__Plan wire;
    struct message_job job;
    uint32_t *contributor;
    int64_t *contributed;
};
enum status message_plan_to_wire(const struct net_plan *plan, struct message_plan *out);
void message_plan_free(struct message_plan *p);
enum status message_plan_from_wire(const Weir__V1__Plan *from, struct net_plan **out,
                                   char why[MESSAGE_WHY_BYTES]);

#endif
