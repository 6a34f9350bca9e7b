/* libweir/warnings.c - see warnings.h. A text is stored as a hash without its numbers, so that all
 * lines of a wait, whose seconds increase, are one text; "ps:0" and "ps:1" are two texts. A table
 * of fixed size keeps the texts printed last. When the table is full, a new text replaces the text
 * that was not logged for the longest time. */
#include "libweir/warnings.h"
#include "base/clock.h"
#include "base/log.h"
#include <ctype.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum { FIRST_PAUSE_MS = 30000, LONGEST_PAUSE_MS = 600000, QUIET_MS = 20000, N_TEXTS = 16 };

struct text {
    uint64_t hash;   /* hash of the text without numbers; 0: the entry is free */
    int64_t last_ns; /* time at which the line was logged last */
    int64_t next_ns; /* time from which it may be printed again */
    int64_t pause_ns;
};

static struct text texts[N_TEXTS];

static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (const char *c = text; *c; c++)
        if (!isdigit((unsigned char)*c) || (c > text && c[-1] == ':'))
            hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    return hash | 1;
}

/* Returns the text's entry. The entry is empty, except for its hash, if the text was not logged for
 * QUIET_MS. */
static struct text *place_of(uint64_t hash, int64_t now)
{
    struct text *oldest = texts, *t = NULL;
    for (int i = 0; i < N_TEXTS; i++) {
        if (texts[i].hash == hash)
            t = &texts[i];
        if (texts[i].last_ns < oldest->last_ns)
            oldest = &texts[i];
    }
    if (!t || now - t->last_ns > QUIET_MS * INT64_C(1000000)) {
        t = t ? t : oldest;
        *t = (struct text){.hash = hash};
    }
    return t;
}

static bool is_due(const char *text)
{
    int64_t now = clock_now_ns();
    struct text *t = place_of(hash_of(text), now);
    t->last_ns = now;
    if (now < t->next_ns)
        return false;
    t->pause_ns = t->pause_ns ? 2 * t->pause_ns : FIRST_PAUSE_MS * INT64_C(1000000);
    if (t->pause_ns > LONGEST_PAUSE_MS * INT64_C(1000000))
        t->pause_ns = LONGEST_PAUSE_MS * INT64_C(1000000);
    t->next_ns = now + t->pause_ns;
    return true;
}

/* Writes without SIGPIPE: the signal would end the program that uses the library. */
static void write_line(const char *line, size_t n)
{
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    if (pthread_sigmask(SIG_BLOCK, &pipe, &before) != 0)
        return;
    if (write(STDERR_FILENO, line, n) < 0 && !was_pending)
        sigtimedwait(&pipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void warnings_print(const char *text)
{
    char line[LOG_TEXT_BYTES + 8];
    struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (!is_due(text))
        return;
    int n = snprintf(line, sizeof line, "weir: %s\n", text);
    if (n > 0 && poll(&to, 1, 0) == 1 && to.revents == POLLOUT)
        write_line(line, (size_t)n);
}
