/* net/exchange/status_client.h - asks a server how its job stands, has something done there, or
 * tells it of an evaluation. Threads: a call blocks its own thread alone. Errors:  ST_UNAVAILABLE,
 * ST_DEADLINE, ST_PROTOCOL, ST_NOMEM; not logged, a sentence in `why`. */
#ifndef NET_EXCHANGE_STATUS_CLIENT_H
#define NET_EXCHANGE_STATUS_CLIENT_H
#include "net/wire/status.h"
#include <stdbool.h>

/* One call each: connects, asks, and goes. *out: net_status_free it. why: of CONTROL_TEXT_BYTES. */
enum status status_client_ask(const char *addr, int with_model, int64_t deadline_ms,
                              struct net_status *out, char *why);
enum status status_client_send_command(const char *addr, const struct net_command *command,
                                       int64_t deadline_ms, struct net_command_reply *out,
                                       char *why);

/* Asks one server for its status again and again over one channel: a look-up of its name, or a
 * handshake, that takes longer than one deadline is complete in a later call. One thread. */
struct status_asker;
enum status status_asker_create(const char *addr, struct status_asker **out); /* ST_NOMEM */
void status_asker_destroy(struct status_asker *a);                            /* NULL is fine */
/* As status_client_ask, without the model. At ST_DEADLINE `why` is "no answer". */
enum status status_asker_ask(struct status_asker *a, int64_t deadline_ms, struct net_status *out,
                             char *why);
/* Returns true if the last call's error is the server's state, and not only a slow start of the
 * channel: a call over an established connection ran out, or several calls in a row have failed. */
bool status_asker_is_unanswered(const struct status_asker *a);

/* An evaluation is told again and again until ps 0 lets its sender go on: all over one channel. */
struct status_client;
enum status status_client_create(const char *addr, struct status_client **out); /* ST_NOMEM */
void status_client_destroy(struct status_client *e);                            /* NULL is fine */
/* One thread at a time. why: as above. */
enum status status_client_send_evaluation(struct status_client *e,
                                          const struct net_evaluation *evaluation,
                                          int64_t deadline_ms, struct net_evaluation_reply *out,
                                          char *why);

#endif
