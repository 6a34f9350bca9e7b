/* base/hosts.h - lists of host:port as TensorFlow's flags spell them.
 * Accepts "a:1,b:2", "[::1]:2221", also with spaces around commas and with TensorFlow's "grpc://"
 * before an entry; no empty entries, no address twice. Host names are kept in small letters, so
 * that they compare without case. Errors: ST_INVALID (logged with the entry and the flag),
 * ST_NOMEM. */
#ifndef BASE_HOSTS_H
#define BASE_HOSTS_H
#include "base/status.h"
#include <stddef.h>

enum { HOSTS_MAX = 4096 };

struct hosts {
    int n;
    char **addr; /* n strings "host:port" */
};

/* flag: the flag's name for the error's text. An empty or NULL text gives n = 0. */
enum status hosts_parse(const char *text, const char *flag, struct hosts *out);
void hosts_free(struct hosts *h);
/* What is wrong with one address: NULL, or words that go on after its name ("has no port; ..."). */
const char *hosts_problem(const char *addr);
/* Puts one address in small letters, as lists have it. */
void hosts_lower(char *addr);
/* Copies of n addresses that hosts_problem finds nothing wrong with. ST_INVALID (not logged): one
 * is wrong, there twice, or there are more than HOSTS_MAX; ST_NOMEM. */
enum status hosts_copy(const char *const *addr, size_t n, struct hosts *out);
/* Its place in the list; -1: it is not there. */
int hosts_find(const struct hosts *h, const char *addr);
/* How many entries have the host of entry i (which counts), compared as they are spelled; all of
 * loopback are one. 0: there is no entry i. */
int hosts_on_same(const struct hosts *h, int i);
/* 1 if the entry's host is a loopback name or address (127.*, ::1, localhost). */
int hosts_is_loopback(const char *addr);

#endif
