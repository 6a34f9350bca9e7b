/* http/server.h - a few pages over HTTP, for browsers and programs that watch this one: GET and
 * HEAD, nothing that a request says changes anything. Not encrypted, and nobody is asked who he is.
 *
 * Whoever asks, and however badly, takes little from the program: one thread, at most a fiftieth of
 * a core; 64 connections of 16 KB at most, each for one request and 15 s at most, the oldest of
 * which makes room for a new one; a page is made at most once in its `fresh_ms`, others get the
 * same bytes.
 *
 * Owns:    the socket, the thread, the last answer of each page.
 * Threads: pages and the tick are called by the server's own, one at a time; they may take locks
 *          that are held briefly.
 * Errors:  ST_NOT_FOUND libmicrohttpd, ST_NOMEM; logged. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H
#include "base/status.h"
#include <stdio.h>

struct http_page {
    const char *path; /* "/metrics" */
    const char *type; /* Content-Type */
    int fresh_ms;     /* the answer is good for so long; -1: for ever */
    /* Writes the body; returns HTTP's status (200, 503). */
    int (*make)(void *ctx, FILE *out);
};

struct http_server_config {
    int listen_fd; /* of http_listen; given to the server, also where that cannot be made */
    const struct http_page *pages; /* borrowed until destroy */
    int n_pages;
    void (*tick)(void *ctx); /* once a second, whoever asks; NULL: nothing is to be done */
    void *ctx;
    int life_ms; /* of a connection, two thirds of it without a byte; 0: 15000 */
};

struct http_server;
enum status http_server_create(const struct http_server_config *cfg, struct http_server **out);
void http_server_destroy(struct http_server *s); /* NULL is fine */

#endif
