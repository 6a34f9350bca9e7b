/* net/exchange/server_set.h - the servers of a generation, and the links to them. Private to
 * net/exchange.
 * Owns:    the links that the set has created, until the set is installed.
 * Threads: only the caller's thread.
 * Errors:  ST_NOMEM; logged. */
#ifndef NET_EXCHANGE_SERVER_SET_H
#define NET_EXCHANGE_SERVER_SET_H
#include "net/exchange/link.h"

/* Servers of a generation as links: links that stay, new links, and those that must be retired. */
struct server_set {
    struct link **links, **gone;
    int n, n_gone;
    int *from;   /* [n] present index of the link; -1: new link */
    int *server; /* shard map */
    char *idle;  /* [n] true if the server has no chunks */
};

/* Makes the set of links for the servers and the map in the reply, and stores in *e the facts
 * that the session needs. The caller passes *out to server_set_install, and in any case to
 * server_set_free. ST_NOMEM: logged. */
enum status server_set_make(struct net_exchange *x, const struct net_join_reply *reply,
                            struct session_event *e, struct server_set *out);
/* Moves the links into the exchange. The caller holds x->lock. */
void server_set_install(struct net_exchange *x, struct server_set *set);
/* Frees the links that the set still holds; those in `gone` are cancelled. */
void server_set_free(struct server_set *set);

#endif
