/* net/security/tokens.h - secrets that calls carry, with the roles that each one grants.
 *
 * The file has lines `ROLES TOKEN`, where ROLES is a list of ps, worker, admin with commas
 * between, or `TOKEN` alone, which grants ps and worker; empty lines and lines that begin with #
 * are ignored. A token is 16 to 512 visible ASCII characters. A program shows the first token
 * that has its own role; a server accepts every line, so that a new token can stand beside the
 * old one.
 * Owns:    copies of the lines.
 * Threads: any.
 * Errors:  ST_INVALID, ST_NOMEM, and those of the file; not logged, words in `why` that follow
 *          the file's name. */
#ifndef NET_SECURITY_TOKENS_H
#define NET_SECURITY_TOKENS_H
#include "net/security/file_text.h"

enum { TOKEN_LEAST = 16, TOKEN_MOST = 512, TOKENS_MOST = 256 };

struct tokens {
    int n;
    struct token {
        unsigned roles;
        unsigned char digest[32]; /* SHA-256 of the token, which is compared */
        char *text;
    } * line;
};

/* Parses the text of a file. */
enum status tokens_parse(const char *text, struct tokens *out, char why[FILE_WHY_BYTES]);
void tokens_free(struct tokens *t);
/* Returns the roles that these n bytes grant as a token; 0: no line contains them. The duration
 * depends neither on the line that matches nor on whether one does. */
unsigned tokens_roles(const struct tokens *t, const char *shown, size_t n);
/* Returns the token that a program with this role shows; NULL: none has the role. */
const char *tokens_own(const struct tokens *t, unsigned role);

#endif
