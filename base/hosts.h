/* base/hosts.h - lists of host:port in the form of TensorFlow's flags. The parser accepts "a:1,b:2"
 * and "[::1]:2221", with or without spaces around commas and "grpc://" before an entry; it refuses
 * empty entries and duplicate addresses. Host names are converted to small letters, so that case
 * does not matter when they are compared. Errors: ST_INVALID (logged with the entry and the flag),
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

/* Parses a list. flag: the flag's name, for errors. An empty or NULL text is a list with n = 0. */
enum status hosts_parse(const char *text, const char *flag, struct hosts *out);
void hosts_free(struct hosts *h);
/* Checks one address. Returns NULL, or the fault as a text that continues a sentence after the
 * address, such as "has no port; ...". */
const char *hosts_problem(const char *addr);
/* Changes one address to small letters, the form in lists. */
void hosts_lower(char *addr);
/* Copies n addresses. ST_INVALID (not logged): hosts_problem refuses an address, an address is a
 * duplicate, or there are more than HOSTS_MAX; ST_NOMEM. */
enum status hosts_copy(const char *const *addr, size_t n, struct hosts *out);
/* Returns the index of an address; -1: it is not in the list. */
int hosts_find(const struct hosts *h, const char *addr);
/* Counts the entries that have the same host as entry i, including entry i. Hosts are compared as
 * texts; all loopback names and addresses are one host. 0: there is no entry i. */
int hosts_on_same(const struct hosts *h, int i);
/* Returns 1 if the host is a loopback name or address, otherwise 0 (127.*, ::1, localhost). */
int hosts_is_loopback(const char *addr);

#endif
