/* http/server.h - serves a few pages over HTTP to browsers and to programs that monitor this
 * program. It answers GET and HEAD only, and no request changes anything. There is no encryption
 * and no authentication.
 *
 * Clients cannot slow the program down: the server has one thread, which uses at most 1/50 of a
 * core, and at most 64 connections of 16 KB, each for one request and at most 15 s. If too many are
 * open, the server closes the oldest. A page is made at most once per `fresh_ms`; requests in
 * between receive the same bytes.
 *
 * Owns:    the socket, the thread, the last answer of each page.
 * Threads: the server's thread calls `make` and `tick`, one at a time; they may wait for locks
 *          that are held briefly.
 * Errors:  ST_NOT_FOUND (libmicrohttpd), ST_NOMEM; logged. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H
#include "base/status.h"
#include <stdio.h>

struct http_page {
    const char *path; /* "/metrics" */
    const char *type; /* Content-Type */
    int fresh_ms;     /* time in ms for which an answer is repeated; -1: for ever */
    /* Writes the body; returns HTTP's status (200, 503). */
    int (*make)(void *ctx, FILE *out);
};

struct http_server_config {
    int listen_fd;                 /* listening socket; the server, or a failed create, closes it */
    const struct http_page *pages; /* borrowed until destroy */
    int n_pages;
    void (*tick)(void *ctx); /* called once a second; may be NULL */
    void *ctx;
    int life_ms; /* longest life of a connection, at most two thirds of it without a byte; 0: 15000
                  */
};

struct http_server;
/* Starts the server's thread. */
enum status http_server_create(const struct http_server_config *cfg, struct http_server **out);
void http_server_destroy(struct http_server *s); /* NULL is fine */

#endif
