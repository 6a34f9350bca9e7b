/* net/security/security.c - see security.h. Only the readers' threads access files (file_reader.h):
 * one reader reads the certificate's three files, and a second one the tokens, because both may be
 * on different file systems. */
#include "net/security/security.h"
#include "base/hosts.h"
#include "base/log.h"
#include "net/security/certificate.h"
#include "net/security/file_reader.h"
#include "net/security/file_text.h"
#include "net/security/tls_client.h"
#include "net/security/tls_hooks.h"
#include "net/security/tokens.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOON_DAYS = 30, N_FILES = 3, DAY_S = 86400 };

struct identity {
    struct security_identity is; /* must be the first field, because callers hold a pointer to it */
    _Atomic int refs;
    char *text[N_FILES]; /* contents of the files cert, key, ca */
    /* contents of cert with a mark (tls_client_mark), for connections in which this program is the
     * client */
    char *marked;
    bool open_key; /* other users may read the key's file */
    struct certificate_facts facts;
};

static struct {
    struct security_config cfg;
    int tls, token;
    /* stamps of the files when the reader last checked them; used only by the reader */
    struct file_text_stamp identity_files[N_FILES];
    /* stamp of the file when the reader last checked it; used only by the reader */
    struct file_text_stamp token_file;
    enum status first; /* result of the first read, for the thread that waits for it */
    char first_why[CERTIFICATE_WHY_BYTES];
    bool open_tokens;          /* other users may read the tokens' file */
    pthread_mutex_t lock;      /* guards the fields below; never held during a read */
    struct identity *identity; /* NULL: not read yet */
    struct tokens tokens;      /* n 0: not read yet */
} us = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void read_identity(struct file_reader *r);
static void read_tokens(struct file_reader *r);
static struct file_reader identity_reader =
    FILE_READER(read_identity, "the previous certificate stays in use");
static struct file_reader token_reader =
    FILE_READER(read_tokens, "the previous tokens stay in use");

static bool is_set(const char *path)
{
    return path && *path;
}

static void identity_unref(struct identity *i)
{
    if (!i || atomic_fetch_sub_explicit(&i->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int f = 0; f < N_FILES; f++)
        file_text_free(i->text[f]);
    free(i->marked);
    free(i);
}

static void paths_of(const char *path[N_FILES])
{
    path[0] = us.cfg.cert;
    path[1] = us.cfg.key;
    path[2] = us.cfg.ca;
}

/* Reads and checks the certificate's files. why: a sentence. */
static enum status identity_read(struct identity **out, char why[CERTIFICATE_WHY_BYTES])
{
    const char *path[N_FILES];
    char file_why[FILE_WHY_BYTES];
    enum status st = ST_OK;
    struct identity *i = calloc(1, sizeof *i);
    snprintf(why, CERTIFICATE_WHY_BYTES, "out of memory");
    if (!i)
        return ST_NOMEM;
    atomic_init(&i->refs, 1);
    paths_of(path);
    for (int f = 0; f < N_FILES; f++) {
        bool is_open = false;
        atomic_store(&identity_reader.file, path[f]);
        st = file_text_read(path[f], &i->text[f], &is_open, file_why);
        if (st != ST_OK)
            snprintf(why, CERTIFICATE_WHY_BYTES, "%.200s %s", path[f], file_why);
        TRY(st);
        i->open_key |= f == 1 && is_open;
    }
    const struct certificate_files files = {i->text[0], i->text[1], i->text[2],
                                            path[0],    path[1],    path[2]};
    TRY(certificate_files_check(&files, us.cfg.role & ROLE_PS, &i->facts, why));
    if (us.cfg.role != ROLE_ADMIN && !(i->facts.roles & us.cfg.role)) {
        char is[ROLES_TEXT_BYTES], want[ROLES_TEXT_BYTES];
        snprintf(
            why, CERTIFICATE_WHY_BYTES,
            "%.200s is for the role %s, not %s; use one with URI:weir://role/%s among its subject alternative names",
            path[0], roles_text(i->facts.roles, is), roles_text(us.cfg.role, want), want);
        TRY(ST_INVALID);
    }
    snprintf(why, CERTIFICATE_WHY_BYTES, "out of memory");
    TRY(tls_client_mark(i->text[0], &i->marked));
    i->is = (struct security_identity){i->text[0], i->marked, i->text[1], i->text[2], 0};
    *out = i;
    i = NULL;
done:
    identity_unref(i);
    return st;
}

/* Returns the log level of lines that report no problem. In weirctl that level is DEBUG, so that
 * the operator sees only the result of the command, and problems. */
static enum log_level info_level(void)
{
    return us.cfg.role == ROLE_ADMIN ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO;
}

static void log_identity(const struct identity *i, const char *what)
{
    char roles[ROLES_TEXT_BYTES];
    const struct certificate_facts *f = &i->facts;
    LOG_AT(info_level(), "%s %s: %s, role %s, valid until %s", what, us.cfg.cert, f->name,
           roles_text(f->roles, roles), f->ends);
    if (f->problem[0])
        LOG_W("peers will refuse the certificate in %s: it %s", us.cfg.cert, f->problem);
    else if (f->seconds_left < (int64_t)SOON_DAYS * DAY_S)
        LOG_W(
            "the certificate in %s expires in %lld days, on %s; put a new certificate there; the program reads it without a restart",
            us.cfg.cert, (long long)(f->seconds_left / DAY_S), f->ends);
    if (i->open_key)
        LOG_W("%s: other users may read this private key; chmod 600", us.cfg.key);
}

static void stamp_identity(struct file_text_stamp now[N_FILES])
{
    const char *path[N_FILES];
    paths_of(path);
    for (int f = 0; f < N_FILES; f++) {
        atomic_store(&identity_reader.file, path[f]);
        now[f] = file_text_stamp_of(path[f]);
    }
}

static void use_identity(struct identity *new)
{
    pthread_mutex_lock(&us.lock);
    struct identity *old = us.identity;
    new->is.number = old ? old->is.number + 1 : 1;
    us.identity = new;
    pthread_mutex_unlock(&us.lock);
    identity_unref(old);
}

/* Uses the new files if they have changed and fit together. Runs in the reader's thread. */
static void read_identity(struct file_reader *r)
{
    struct file_text_stamp now[N_FILES];
    struct identity *new = NULL;
    char why[CERTIFICATE_WHY_BYTES];
    bool same = 1;
    stamp_identity(now);
    for (int f = 0; f < N_FILES; f++)
        same &= file_text_stamp_same(&now[f], &us.identity_files[f]);
    memcpy(us.identity_files, now, sizeof now);
    if (!us.identity) {
        us.first = identity_read(&new, us.first_why);
        if (us.first == ST_OK)
            use_identity(new);
        return;
    }
    if (same)
        return;
    if (identity_read(&new, why) == ST_OK && new->facts.problem[0]) {
        snprintf(why, sizeof why, "%.100s %.290s", us.cfg.cert, new->facts.problem);
        identity_unref(new);
        new = NULL;
    }
    if (!new) {
        LOG_W(
            "the certificate's files have changed and cannot be used: %s; the previous certificate stays in use",
            why);
        return;
    }
    log_identity(new, "TLS: new certificate read from");
    use_identity(new);
}

const struct security_identity *security_identity_now(void)
{
    if (!us.tls)
        return NULL;
    file_reader_look(&identity_reader);
    pthread_mutex_lock(&us.lock);
    struct identity *i = us.identity;
    atomic_fetch_add_explicit(&i->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&us.lock);
    return &i->is;
}

void security_identity_unref(const struct security_identity *i)
{
    identity_unref((struct identity *)(uintptr_t)i);
}

uint64_t security_identity_number(void)
{
    if (!us.tls)
        return 0;
    file_reader_look(&identity_reader);
    pthread_mutex_lock(&us.lock);
    uint64_t number = us.identity->is.number;
    pthread_mutex_unlock(&us.lock);
    return number;
}

/* Returns the token that this program shows: one that grants the program's role. If no token grants
 * the role of weirctl, weirctl shows any token. */
static const char *own_token(const struct tokens *t)
{
    const char *own = tokens_own(t, us.cfg.role);
    return own || us.cfg.role != ROLE_ADMIN ? own : tokens_own(t, ROLE_ALL);
}

/* Reads the tokens' file. why: receives a text that continues a message after the file's name. */
static enum status tokens_parse_file(struct tokens *out, bool *is_open, char why[FILE_WHY_BYTES])
{
    char *text = NULL, role[ROLES_TEXT_BYTES];
    struct tokens t = {.n = 0};
    enum status st = ST_OK;
    TRY(file_text_read(us.cfg.token_file, &text, is_open, why));
    TRY(tokens_parse(text, &t, why));
    if (!own_token(&t)) {
        snprintf(why, FILE_WHY_BYTES, "has no token for the role %s",
                 roles_text(us.cfg.role, role));
        tokens_free(&t);
        TRY(ST_INVALID);
    }
    *out = t;
done:
    file_text_free(text);
    return st;
}

static void log_tokens(const char *what)
{
    LOG_AT(info_level(), "%s %s", what, us.cfg.token_file);
    if (us.open_tokens)
        LOG_W("%s: other users may read these tokens; chmod 600", us.cfg.token_file);
}

static void use_tokens(struct tokens *new)
{
    pthread_mutex_lock(&us.lock);
    struct tokens old = us.tokens;
    us.tokens = *new;
    pthread_mutex_unlock(&us.lock);
    tokens_free(&old);
}

/* Uses the new tokens if the file has changed and is valid. Runs in the reader's thread. */
static void read_tokens(struct file_reader *r)
{
    struct tokens new;
    char why[FILE_WHY_BYTES];
    atomic_store(&r->file, us.cfg.token_file);
    struct file_text_stamp now = file_text_stamp_of(us.cfg.token_file);
    bool same = file_text_stamp_same(&now, &us.token_file);
    us.token_file = now;
    if (us.tokens.n > 0 && same)
        return;
    enum status st = tokens_parse_file(&new, &us.open_tokens, why);
    if (us.tokens.n == 0) {
        us.first = st;
        snprintf(us.first_why, sizeof us.first_why, "%s", why);
        if (st == ST_OK)
            use_tokens(&new);
        return;
    }
    if (st != ST_OK) {
        LOG_W("--token_file=%s has changed and cannot be used: %s; the previous tokens stay in use",
              us.cfg.token_file, why);
        return;
    }
    log_tokens("new tokens read from");
    use_tokens(&new);
}

unsigned security_token_roles(const char *shown, size_t n)
{
    file_reader_look(&token_reader);
    pthread_mutex_lock(&us.lock);
    unsigned roles = tokens_roles(&us.tokens, shown, n);
    pthread_mutex_unlock(&us.lock);
    return roles;
}

char *security_token_copy(void)
{
    if (!us.token)
        return NULL;
    file_reader_look(&token_reader);
    pthread_mutex_lock(&us.lock);
    const char *own = own_token(&us.tokens);
    char *copy = own ? strdup(own) : NULL;
    pthread_mutex_unlock(&us.lock);
    return copy;
}

/* start_tls and start_token log in the caller's thread, because the caller may collect the log
 * lines of its thread. They replace values of an earlier start that failed. */
static enum status start_tls(void)
{
    tls_hooks_start();
    tls_client_start();
    identity_unref(us.identity);
    us.identity = NULL;
    file_reader_look_first(&identity_reader);
    us.tls = us.first == ST_OK;
    if (us.tls)
        log_identity(us.identity, "TLS: certificate");
    else
        LOG_E("--tls_cert, --tls_key, --tls_ca: %s", us.first_why);
    return us.first;
}

static enum status start_token(void)
{
    tokens_free(&us.tokens);
    file_reader_look_first(&token_reader);
    us.token = us.first == ST_OK;
    if (us.token)
        log_tokens(us.cfg.role & ROLE_PS ? "each call needs a token of"
                                         : "each call shows a token of");
    else
        LOG_E("--token_file=%s %s", us.cfg.token_file, us.first_why);
    return us.first;
}

enum status security_start(const struct security_config *cfg)
{
    enum status st = ST_OK;
    int n = is_set(cfg->cert) + is_set(cfg->key) + is_set(cfg->ca);
    us.cfg = *cfg;
    if (n != 0 && n != N_FILES) {
        LOG_E("--tls_cert, --tls_key and --tls_ca go together; set all three or none");
        return ST_INVALID;
    }
    if (n > 0)
        TRY(start_tls());
    if (is_set(cfg->token_file))
        TRY(start_token());
done:
    return st;
}

bool security_has_tls(void)
{
    return us.tls;
}

bool security_has_token(void)
{
    return us.token;
}

void security_warn_plain(const char *addr)
{
    static _Atomic bool is_logged;
    if (us.tls || hosts_is_loopback(addr) || atomic_exchange(&is_logged, true))
        return;
    LOG_W(
        "%s is not a loopback address: traffic is %s; let only a trusted network or IPSec reach it, or start all programs with --tls_cert, --tls_key and --tls_ca",
        addr,
        us.token ? "not encrypted: anyone who can read the traffic has the token"
                 : "neither encrypted nor authenticated");
}

const char *security_cert_path(void)
{
    return us.cfg.cert;
}

const char *security_ca_path(void)
{
    return us.cfg.ca;
}
