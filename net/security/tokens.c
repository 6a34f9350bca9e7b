/* net/security/tokens.c - see tokens.h. The code compares digests, which all have the same length,
 * so that the duration reveals nothing about the tokens. */
#include "net/security/tokens.h"
#include "net/security/roles.h"
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status digest_of(const char *text, size_t n, unsigned char out[32])
{
    return EVP_Digest(text, n, out, NULL, EVP_sha256(), NULL) ? ST_OK : ST_NOMEM;
}

static size_t visible(const char *text)
{
    size_t n = 0;
    while (text[n] > ' ' && text[n] < 0x7f)
        n++;
    return n;
}

/* Parses a list such as "ps,worker"; 0: a word is not a role. */
static unsigned roles_of_list(const char *list, size_t n)
{
    unsigned roles = 0;
    for (const char *end = list + n; list <= end;) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        size_t word = (size_t)((comma ? comma : end) - list);
        unsigned role = roles_of_name(list, word);
        if (!role)
            return 0;
        roles |= role;
        list += word + 1;
    }
    return roles;
}

/* Parses one line, which begins at its first word. */
static enum status add_line(struct tokens *t, const char *line, int number, char *why)
{
    size_t first = visible(line), gap = strspn(line + first, " \t");
    const char *token = line + first + gap;
    size_t n = visible(token);
    unsigned roles = ROLE_PS | ROLE_WORKER;
    if (n > 0) {
        roles = roles_of_list(line, first);
    } else {
        token = line;
        n = first;
    }
    const char *rest = token + n + strspn(token + n, " \t\r");
    const char *wrong = t->n == TOKENS_MOST      ? "too many lines"
                        : !roles                 ? "the roles are not a list of ps,worker,admin"
                        : *rest && *rest != '\n' ? "there is text after the token"
                        : n < TOKEN_LEAST        ? "the token is shorter than 16 characters"
                        : n > TOKEN_MOST         ? "the token is longer than 512 characters"
                                                 : NULL;
    if (wrong) { /* the message does not quote the line, which is a secret */
        snprintf(why, FILE_WHY_BYTES, "line %d: %s", number, wrong);
        return ST_INVALID;
    }
    struct token *more = realloc(t->line, (size_t)(t->n + 1) * sizeof *more);
    if (!more)
        return ST_NOMEM;
    t->line = more;
    struct token *new = &more[t->n];
    *new = (struct token){.roles = roles, .text = strndup(token, n)};
    if (!new->text)
        return ST_NOMEM;
    t->n++;
    return digest_of(token, n, new->digest);
}

enum status tokens_parse(const char *text, struct tokens *out, char why[FILE_WHY_BYTES])
{
    struct tokens t = {.n = 0};
    enum status st = ST_OK;
    int number = 0;
    snprintf(why, FILE_WHY_BYTES, "out of memory");
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        number++;
        line += strspn(line, " \t\r");
        if (*line && *line != '\n' && *line != '#')
            TRY(add_line(&t, line, number, why));
    }
    if (t.n == 0) {
        snprintf(why, FILE_WHY_BYTES, "has no token: write a line of ROLES TOKEN");
        TRY(ST_INVALID);
    }
done:
    if (st == ST_OK)
        *out = t;
    else
        tokens_free(&t);
    return st;
}

void tokens_free(struct tokens *t)
{
    for (int i = 0; i < t->n; i++)
        file_text_free(t->line[i].text);
    free(t->line);
    *t = (struct tokens){.n = 0};
}

unsigned tokens_roles(const struct tokens *t, const char *shown, size_t n)
{
    unsigned char digest[32];
    unsigned roles = 0;
    if (digest_of(shown, n, digest) != ST_OK)
        return 0;
    for (int i = 0; i < t->n; i++) {
        unsigned same = CRYPTO_memcmp(digest, t->line[i].digest, sizeof digest) == 0;
        roles |= t->line[i].roles & (0U - same);
    }
    return roles;
}

const char *tokens_own(const struct tokens *t, unsigned role)
{
    for (int i = 0; i < t->n; i++)
        if (t->line[i].roles & role)
            return t->line[i].text;
    return NULL;
}
