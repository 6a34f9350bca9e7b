/* ps/lead.h - ps 0 decides on checkpoints: when, at which step, and when one is whole.
 *
 * An order names a step that no chunk of any server has reached. The servers say that they have it,
 * later that their file is written; then ps 0 writes the manifest. One order is out at a time; with
 * --save_steps it goes out long before its step. For a checkpoint that is wanted now, ps 0 holds
 * back its answers (ps_store_hold) while the order goes round: no chunk can then get to the step
 * before all servers know, since workers need all chunks of a step for the next.
 * Where chunks go each at its own pace (async, ssp, backup workers) a chunk that is past the step
 * is taken as it is.
 * A server that fails or is not heard of has the checkpoint given up, with a line; training never
 * waits for one longer than a round trip to the servers (at most HOLD_MS).
 *
 * Owns:    one thread; what it knows of the other servers.
 * Threads: any; finish and destroy from one.
 * Errors:  ST_NOMEM. */
#ifndef PS_LEAD_H
#define PS_LEAD_H
#include "net/control.h"
#include "ps/saver.h"

struct lead_config {
    struct ps_service *service;
    struct saver *saver; /* this server's own part */
    const char *folder;  /* borrowed for ever */
    int n_servers;
    int64_t save_steps, save_ms;       /* 0: not by steps, not by time */
    int keep;                          /* checkpoints; 0: all */
    int64_t restored_step;             /* of the checkpoint that the job goes on from; -1: none */
    char restored[CONTROL_TEXT_BYTES]; /* its manifest's name; empty: none */
    uint64_t generation;               /* of the first job */
    /* Answers a call that lead_control was given. */
    void (*reply)(void *ctx, uint64_t call, const struct net_control_reply *reply);
    void *ctx;
};

struct lead;
enum status lead_create(const struct lead_config *cfg, struct lead **out);
enum status lead_start(struct lead *l); /* once the saver and the server are there */
/* Nothing more is ordered; the saver is not used any more. NULL is fine, here and below. */
void lead_stop(struct lead *l);
void lead_destroy(struct lead *l);
void lead_wake(struct lead *l);    /* a run has begun, the saver's state has changed */
void lead_request(struct lead *l); /* a checkpoint now */
/* Another server's word; answered by cfg.reply, now or later. */
void lead_control(struct lead *l, const struct net_control *request, uint64_t call);
/* The last checkpoint, then tells the servers that it was the last. */
void lead_finish(struct lead *l);

#endif
