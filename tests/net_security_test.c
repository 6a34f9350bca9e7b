/* tests/net_security_test.c - names of roles, the file of tokens, and the roles of a token. */
#include "net/security/roles.h"
#include "net/security/tokens.h"
#include "tests/check.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORKER "wwwwwwwwwwwwwwww"
#define ADMIN "aaaaaaaaaaaaaaaa"
#define BOTH "bbbbbbbbbbbbbbbb"

static unsigned of_uri(const char *uri)
{
    return roles_of_uri(uri, strlen(uri));
}

static void uri_names_its_role(void **state)
{
    assert_int_equal(of_uri("weir://role/ps"), ROLE_PS);
    assert_int_equal(of_uri("weir://role/worker"), ROLE_WORKER);
    assert_int_equal(of_uri("weir://role/admin"), ROLE_ADMIN);
    static const char *const others[] = {"",
                                         "weir://role/",
                                         "weir://role/p",
                                         "weir://role/ps/",
                                         "weir://role/ps2",
                                         "weir://role/PS",
                                         "weir://role/worker,admin",
                                         "http://role/ps",
                                         " weir://role/ps",
                                         "ps"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(of_uri(others[i]), 0);
    /* Bytes behind the n bytes are not read, and a NUL byte does not end the name. */
    assert_int_equal(roles_of_uri("weir://role/workers", 18), ROLE_WORKER);
    assert_int_equal(roles_of_uri("weir://role/ps\0x", 16), 0);
}

static void roles_are_written_as_text(void **state)
{
    char text[ROLES_TEXT_BYTES];
    assert_string_equal(roles_text(0, text), "none");
    assert_string_equal(roles_text(ROLE_ADMIN, text), "admin");
    assert_string_equal(roles_text(ROLE_ALL, text), "ps, worker, admin");
}

static unsigned shown(const struct tokens *t, const char *token)
{
    return tokens_roles(t, token, strlen(token));
}

static void token_grants_its_roles(void **state)
{
    struct tokens t;
    char why[FILE_WHY_BYTES];
    assert_int_equal(
        tokens_parse("# of the job\n\n  worker \t" WORKER "  \r\nadmin " ADMIN "\n" BOTH, &t, why),
        ST_OK);
    assert_int_equal(t.n, 3);
    assert_int_equal(shown(&t, WORKER), ROLE_WORKER);
    assert_int_equal(shown(&t, ADMIN), ROLE_ADMIN);
    assert_int_equal(shown(&t, BOTH), ROLE_PS | ROLE_WORKER);
    assert_string_equal(tokens_own(&t, ROLE_WORKER), WORKER);
    assert_string_equal(tokens_own(&t, ROLE_PS), BOTH);
    assert_string_equal(tokens_own(&t, ROLE_ADMIN), ADMIN);
    static const char *const others[] = {"",
                                         "w",
                                         WORKER "w",
                                         "wwwwwwwwwwwwwww",
                                         "wwwwwwwwwwwwwwwx",
                                         "xwwwwwwwwwwwwwww",
                                         "WWWWWWWWWWWWWWWW"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(shown(&t, others[i]), 0);
    assert_int_equal(tokens_roles(&t, WORKER "\0", 17), 0);
    tokens_free(&t);
}

/* One secret may have several roles, in one line or several; old and new tokens are valid. */
static void token_may_have_several_roles(void **state)
{
    struct tokens t;
    char why[FILE_WHY_BYTES];
    assert_int_equal(
        tokens_parse("ps,worker,admin " ADMIN "\nworker " WORKER "\nadmin " WORKER, &t, why),
        ST_OK);
    assert_int_equal(shown(&t, ADMIN), ROLE_ALL);
    assert_int_equal(shown(&t, WORKER), ROLE_WORKER | ROLE_ADMIN);
    assert_string_equal(tokens_own(&t, ROLE_WORKER), ADMIN);
    tokens_free(&t);
    assert_int_equal(tokens_parse("worker " WORKER, &t, why), ST_OK);
    assert_null(tokens_own(&t, ROLE_ADMIN));
    tokens_free(&t);
}

static void invalid_token_files_are_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "has no token"},
        {"# nothing\n\n", "has no token"},
        {"worker short", "line 1: the token is shorter"},
        {"short", "line 1: the token is shorter"},
        {"\nboss " ADMIN, "line 2: the roles are"},
        {"ps, " ADMIN, "line 1: the roles are"},
        {",ps " ADMIN, "line 1: the roles are"},
        {"worker " WORKER " more", "line 1: there is text after"},
        {"worker wwwwwwwwwwwwww\xc3\xa4ww", "line 1: there is text after"},
    };
    struct tokens t = {.n = 0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[FILE_WHY_BYTES] = "";
        assert_int_equal(tokens_parse(cases[i].text, &t, why), ST_INVALID);
        if (!strstr(why, cases[i].why))
            fail_msg("'%s': %s", cases[i].text, why);
        assert_null(strstr(why, ADMIN)); /* a log must not contain a secret */
    }
    char *text = malloc(TOKEN_MOST + 2), why[FILE_WHY_BYTES];
    memset(text, 'x', TOKEN_MOST + 1);
    text[TOKEN_MOST + 1] = 0;
    assert_int_equal(tokens_parse(text, &t, why), ST_INVALID);
    text[TOKEN_MOST] = 0;
    assert_int_equal(tokens_parse(text, &t, why), ST_OK);
    tokens_free(&t);
    free(text);
}

static void too_many_tokens_are_refused(void **state)
{
    struct tokens t;
    char why[FILE_WHY_BYTES], *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    for (int i = 0; i < TOKENS_MOST + 1; i++)
        fprintf(f, "worker token-of-number-%04d\n", i);
    fclose(f);
    assert_int_equal(tokens_parse(text, &t, why), ST_INVALID);
    text[n - 1 - strlen("worker token-of-number-0256")] = 0;
    assert_int_equal(tokens_parse(text, &t, why), ST_OK);
    assert_int_equal(t.n, TOKENS_MOST);
    assert_int_equal(shown(&t, "token-of-number-0255"), ROLE_WORKER);
    tokens_free(&t);
    free(text);
}

/* A replaced file has another stamp, even with the same length and in the same second. */
static void replaced_file_has_another_stamp(void **state)
{
    char path[] = "/tmp/weir-security-XXXXXX", other[64], why[FILE_WHY_BYTES], *text;
    int fd = mkstemp(path);
    bool is_open;
    assert_true(fd >= 0);
    struct file_text_stamp first = file_text_stamp_of(path), again = file_text_stamp_of(path);
    assert_true(file_text_stamp_same(&first, &again));
    assert_int_equal(write(fd, "text", 4), 4);
    again = file_text_stamp_of(path);
    assert_false(file_text_stamp_same(&first, &again));
    assert_int_equal(file_text_read(path, &text, &is_open, why), ST_OK);
    assert_string_equal(text, "text");
    assert_int_equal(is_open, 0);
    file_text_free(text);
    assert_int_equal(fchmod(fd, 0640), 0);
    assert_int_equal(file_text_read(path, &text, &is_open, why), ST_OK);
    assert_int_equal(is_open, 1);
    file_text_free(text);
    close(fd);
    snprintf(other, sizeof other, "%s-2", path);
    FILE *f = fopen(other, "w");
    assert_non_null(f);
    fputs("next", f);
    fclose(f);
    first = file_text_stamp_of(path);
    assert_int_equal(rename(other, path), 0);
    again = file_text_stamp_of(path);
    assert_false(file_text_stamp_same(&first, &again));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(file_text_read(path, &text, &is_open, why), ST_NOT_FOUND);
    assert_int_equal(file_text_read("/tmp", &text, &is_open, why), ST_INVALID);
}

int main(void)
{
    return RUN_TESTS(uri_names_its_role, roles_are_written_as_text, token_grants_its_roles,
                     token_may_have_several_roles, invalid_token_files_are_refused,
                     too_many_tokens_are_refused, replaced_file_has_another_stamp);
}
