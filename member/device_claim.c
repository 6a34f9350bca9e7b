/* member/device_claim.c - claims as locked files, see device_claim.h. Claims of fractions
 * are added up under one lock per GPU, so that two processes never claim the same free part. */
#include "member/device_claim.h"
#include "base/clock.h"
#include "member/device_lock.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ADD_WAIT_MS = 5000, MARK_WAIT_MS = 1000, KEY_SIZE = 160 };

int device_claim_parts(double fraction)
{
    double parts = fraction * DEVICE_CLAIM_WHOLE + 0.5;
    if (fraction <= 0)
        return 0;
    return parts < 1 ? 1 : parts > DEVICE_CLAIM_WHOLE ? DEVICE_CLAIM_WHOLE : (int)parts;
}

/* Parses the part of a claim's file name after the GPU's key. Returns false if the name is not a
 * claim's. */
static bool read_name(const char *s, struct device_holder *out)
{
    char how[4] = "";
    int end = 0;
    if (sscanf(s, "%9d-%7d-%3[a-z]-%*16[0-9a-f].lock%n", &out->pid, &out->parts, how, &end) != 3 ||
        end == 0 || s[end] != '\0' || out->pid < 0 || out->parts < 0 ||
        out->parts > DEVICE_CLAIM_WHOLE)
        return false;
    out->is_cap = strcmp(how, "cap") == 0;
    return out->is_cap || strcmp(how, "now") == 0;
}

/* Returns true if the claim's process lives, and fills *out. */
static bool read_claim(const char *path, const char *name, struct device_holder *out)
{
    struct stat st;
    *out = (struct device_holder){.pid = 0};
    if (!read_name(name, out))
        return false;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return false;
    int lives = 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        lives = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (!lives)
            unlink(path);
    }
    close(fd);
    if (!lives)
        return false;
    /* The process id in the name may be that of another container; the kernel's id is valid
     * here. */
    out->pid = device_lock_holder(&st);
    if (out->pid != 0)
        process_info(out->pid, &out->who);
    process_info_user(st.st_uid, out->who.user);
    out->since = (int64_t)st.st_mtime;
    return true;
}

enum status device_claim_list(const char *dir, const char *key, struct device_holders *out)
{
    char path[PATH_MAX], prefix[KEY_SIZE];
    out->n = 0;
    snprintf(prefix, sizeof prefix, "%s.use-", key);
    if (!device_lock_path(dir, prefix, path, sizeof path))
        return ST_IO;
    char *start = path + strlen(dir) + 1;
    size_t n = strlen(start) - strlen(".lock");
    start[n] = '\0';
    snprintf(prefix, sizeof prefix, "%s", start);
    DIR *d = opendir(dir);
    if (d == NULL)
        return ST_IO;
    for (struct dirent *e; out->n < DEVICE_CLAIMS_MAX && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, prefix, n) != 0)
            continue;
        int length = snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (length > 0 && (size_t)length < sizeof path)
            out->n += read_claim(path, e->d_name + n, &out->holder[out->n]);
    }
    closedir(d);
    return ST_OK;
}

void device_claim_mark(const char *dir, const char *key, const struct device_claim_request *want,
                       struct device_claim *out)
{
    char own[KEY_SIZE];
    snprintf(own, sizeof own, "%s.use-%d-%d-%s-%llx", key, (int)getpid(), want->parts,
             want->is_cap ? "cap" : "now", (unsigned long long)clock_now_ns());
    out->mark = -1;
    if (!device_lock_path(dir, own, out->mark_path, sizeof out->mark_path) ||
        device_lock_wait(dir, own, MARK_WAIT_MS, &out->mark) != ST_OK)
        out->mark = -1;
}

void device_claim_release(struct device_claim *c)
{
    if (c->mark >= 0)
        unlink(c->mark_path);
    device_lock_release(c->mark);
    device_lock_release(c->lock);
    c->lock = c->mark = -1;
}

static size_t append_why(char *why, size_t n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static size_t append_why(char *why, size_t n, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(why + n, DEVICE_CLAIM_WHY_SIZE - n, fmt, args);
    va_end(args);
    return more > 0 && n + (size_t)more < DEVICE_CLAIM_WHY_SIZE ? n + (size_t)more
                                                                : DEVICE_CLAIM_WHY_SIZE - 1;
}

/* Writes "process 812 has reserved 0.4 of its memory (worker of anna, since 2026-05-01 14:03)". */
static size_t describe_holder(const struct device_holder *h, char *why, size_t n)
{
    char since[32] = "";
    struct tm tm;
    time_t at = (time_t)h->since;
    if (localtime_r(&at, &tm) != NULL)
        strftime(since, sizeof since, ", since %Y-%m-%d %H:%M", &tm);
    if (h->pid > 0)
        n = append_why(why, n, "process %d has reserved ", h->pid);
    else
        n = append_why(why, n, "a process of another container has reserved ");
    if (h->parts > 0)
        n = append_why(why, n, "%g of its memory", (double)h->parts / DEVICE_CLAIM_WHOLE);
    else
        n = append_why(why, n, "it");
    return append_why(why, n, " (%s%s%s%s)", h->who.program, h->who.program[0] ? " of " : "user ",
                      h->who.user, since);
}

/* Writes the holders and `last` to `why`. Leaves `why` unchanged if no holder has a claim file. */
static void describe_holders(const struct device_holders *others, const char *last, char *why)
{
    size_t n = 0;
    if (others->n == 0)
        return;
    for (int i = 0; i < others->n; i++) {
        if (i > 0)
            n = append_why(why, n, "; ");
        n = describe_holder(&others->holder[i], why, n);
    }
    append_why(why, n, "%s", last);
}

/* Claims a fraction of the GPU. The caller holds the lock under which claims are added up. */
static enum status reserve_part(const char *dir, const char *key,
                                const struct device_claim_request *want, struct device_claim *out,
                                struct device_holders *others, char *why)
{
    enum status st = ST_OK;
    char text[64];
    int sum = 0;
    TRY(device_lock_acquire_shared(dir, key, &out->lock, why));
    if (device_claim_list(dir, key, others) != ST_OK) {
        snprintf(why, DEVICE_CLAIM_WHY_SIZE, "it cannot be reserved (%.150s cannot be listed)",
                 dir);
        TRY(ST_IO);
    }
    for (int i = 0; i < others->n; i++)
        if (want->is_auto || !(others->holder[i].is_cap || want->is_cap))
            sum += others->holder[i].parts;
    if (others->n == DEVICE_CLAIMS_MAX ||
        ((want->is_auto || !want->is_cap) && sum + want->parts > DEVICE_CLAIM_WHOLE)) {
        snprintf(text, sizeof text, ", so %g of it does not fit",
                 (double)want->parts / DEVICE_CLAIM_WHOLE);
        describe_holders(others, text, why);
        TRY(ST_REFUSED);
    }
    device_claim_mark(dir, key, want, out);
    if (out->mark < 0) {
        snprintf(why, DEVICE_CLAIM_WHY_SIZE,
                 "it cannot be reserved (no file can be created in %.150s)", dir);
        TRY(ST_IO);
    }
done:
    if (st != ST_OK)
        device_claim_release(out);
    return st;
}

enum status device_claim_acquire(const char *dir, const char *key,
                                 const struct device_claim_request *want, struct device_claim *out,
                                 struct device_holders *others, char *why)
{
    enum status st;
    struct device_claim c = {.lock = -1, .mark = -1};
    why[0] = '\0';
    others->n = 0;
    if (want->parts == 0) {
        st = device_lock_acquire(dir, key, &c.lock, why);
        if (st == ST_OK)
            device_claim_mark(dir, key, want, &c);
    } else {
        char adding[KEY_SIZE];
        int fd = -1;
        snprintf(adding, sizeof adding, "%s.claim", key);
        device_lock_wait(dir, adding, ADD_WAIT_MS, &fd);
        st = reserve_part(dir, key, want, &c, others, why);
        device_lock_release(fd);
    }
    if (st == ST_BUSY && device_claim_list(dir, key, others) == ST_OK)
        describe_holders(others, "", why);
    if (st == ST_OK)
        *out = c;
    return st;
}
