/* net/security/tokens.h - secrets that calls carry, and for which roles each is.
 *
 * The file has lines `ROLES TOKEN`, ROLES being some of ps, worker, admin with commas between, or
 * `TOKEN` alone, which is for ps and worker; empty lines and those that begin with # are left out.
 * A token is 16 to 512 visible ASCII characters. A program shows the first that is for its own
 * role; a server takes each of its lines, so that a new token can stand beside the old one.
 * Owns:    copies of the lines.
 * Threads: any.
 * Errors:  ST_INVALID, ST_NOMEM, and those of the file; not logged, words in `why` that go on after
 *          the file's name. */
#ifndef NET_SECURITY_TOKENS_H
#define NET_SECURITY_TOKENS_H
#include "net/security/file_text.h"

enum { TOKEN_LEAST = 16, TOKEN_MOST = 512, TOKENS_MOST = 256 };

struct tokens {
    int n;
    struct token {
        unsigned roles;
        unsigned char digest[32]; /* SHA-256, which is compared */
        char *text;
    } * line;
};

/* text: of a file. */
enum status tokens_parse(const char *text, struct tokens *out, char why[FILE_WHY_BYTES]);
void tokens_free(struct tokens *t);
/* What whoever shows these n bytes is allowed; 0: no line has them. Takes as long whichever line it
 * is, and whether one is. */
unsigned tokens_roles(const struct tokens *t, const char *shown, size_t n);
/* What who has the role is to show; NULL: nothing is for it. */
const char *tokens_own(const struct tokens *t, unsigned role);

#endif
