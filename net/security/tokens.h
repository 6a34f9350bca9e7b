/* net/security/tokens.h - reads the file of tokens: secrets that calls carry, and that grant roles.
 *
 * A line of the file is `ROLES TOKEN`, where ROLES is a comma-separated list of ps, worker and
 * admin, or only `TOKEN`, which grants ps and worker. Empty lines and lines that begin with # are
 * ignored. A token is 16 to 512 visible ASCII characters. A program sends the first token that
 * grants its own role. A server accepts the tokens of all lines, so an old and a new token can both
 * be valid.
 * Owns:    copies of the lines.
 * Threads: any.
 * Errors:  ST_INVALID, ST_NOMEM, and those of the file; not logged: `why` receives a text that
 *          continues a message after the file's name. */
#ifndef NET_SECURITY_TOKENS_H
#define NET_SECURITY_TOKENS_H
#include "net/security/file_text.h"

enum { TOKEN_LEAST = 16, TOKEN_MOST = 512, TOKENS_MOST = 256 };

struct tokens {
    int n;
    struct token {
        unsigned roles;
        unsigned char digest[32]; /* SHA-256 of the token; tokens_roles compares digests */
        char *text;
    } * line;
};

/* Parses the text of a file. */
enum status tokens_parse(const char *text, struct tokens *out, char why[FILE_WHY_BYTES]);
void tokens_free(struct tokens *t);
/* Returns the roles that these n bytes grant as a token; 0: no line contains them. The duration
 * depends neither on which line matches nor on whether any line matches. */
unsigned tokens_roles(const struct tokens *t, const char *shown, size_t n);
/* Returns the token that a program with this role sends; NULL: no token grants the role. */
const char *tokens_own(const struct tokens *t, unsigned role);

#endif
