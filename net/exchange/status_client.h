/* net/exchange/status_client.h - requests a job's status from a server, sends it a command, or
 * sends it an evaluation.
 * Threads: a call blocks only its own thread.
 * Errors:  ST_UNAVAILABLE, ST_DEADLINE, ST_PROTOCOL, ST_NOMEM; not logged: `why` receives a
 *          sentence. */
#ifndef NET_EXCHANGE_STATUS_CLIENT_H
#define NET_EXCHANGE_STATUS_CLIENT_H
#include "net/wire/status.h"
#include <stdbool.h>

/* Connects, requests the status and disconnects. status_client_command does the same for a command.
 * The caller frees *out with net_status_free. why: room for CONTROL_TEXT_BYTES. */
enum status status_client_ask(const char *addr, int with_model, int64_t deadline_ms,
                              struct net_status *out, char *why);
enum status status_client_send_command(const char *addr, const struct net_command *command,
                                       int64_t deadline_ms, struct net_command_reply *out,
                                       char *why);

/* Returns true if `why` reports that no program listens at the address. */
bool status_client_is_refused(const char *why);

/* Requests one server's status repeatedly over one channel. If a look-up of the server's name, or a
 * handshake, lasts longer than one deadline, it continues until a later call. Only one thread uses
 * an asker. */
struct status_asker;
enum status status_asker_create(const char *addr, struct status_asker **out); /* ST_NOMEM */
void status_asker_destroy(struct status_asker *a);                            /* NULL is fine */
/* Requests the status as status_client_ask does, but without the model. At ST_DEADLINE `why` is
 * "no answer". */
enum status status_asker_ask(struct status_asker *a, int64_t deadline_ms, struct net_status *out,
                             char *why);
/* Returns true if the last call failed because of the server, and not only because the channel was
 * slow to start: the call was over an established connection, or several calls in a row have
 * failed. */
bool status_asker_is_unanswered(const struct status_asker *a);

/* Sends an evaluation repeatedly, all over one channel, until ps 0 allows its sender to
 * continue. */
struct status_client;
enum status status_client_create(const char *addr, struct status_client **out); /* ST_NOMEM */
void status_client_destroy(struct status_client *e);                            /* NULL is fine */
/* Sends the evaluation once. One thread at a time. why: room for CONTROL_TEXT_BYTES. */
enum status status_client_send_evaluation(struct status_client *e,
                                          const struct net_evaluation *evaluation,
                                          int64_t deadline_ms, struct net_evaluation_reply *out,
                                          char *why);

#endif
