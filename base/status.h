/* base/status.h - the one error type of the house, and the one way to pass it on.
 * The function that first decides on an error logs it, once, with the cause and the fix;
 * callers pass the code up silently. Outputs are written only on ST_OK.
 * Threads: any. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

/* name, text. Grouped by the largest thing that is broken. */
#define STATUS_MAP(X)                                                                              \
    X(ST_OK, "ok")                                                                                 \
    /* the request: what was asked for cannot be, the asker should change it */                    \
    X(ST_INVALID, "invalid argument or input")                                                     \
    X(ST_RANGE, "out of range")                                                                    \
    X(ST_NOT_FOUND, "not found")                                                                   \
    X(ST_CORRUPT, "corrupt data")                                                                  \
    X(ST_MISMATCH, "does not match")                                                               \
    X(ST_UNSUPPORTED, "not supported")                                                             \
    /* the peer: it may work later, or with another peer */                                        \
    X(ST_UNAVAILABLE, "peer unavailable")                                                          \
    X(ST_DEADLINE, "deadline passed")                                                              \
    X(ST_CANCELLED, "cancelled")                                                                   \
    X(ST_REFUSED, "refused by the peer")                                                           \
    X(ST_PROTOCOL, "protocol violated by the peer")                                                \
    X(ST_REBASED, "gone back to an earlier step by the servers")                                   \
    /* the process or its host */                                                                  \
    X(ST_BUSY, "in use")                                                                           \
    X(ST_NOMEM, "out of memory")                                                                   \
    X(ST_IO, "input or output failed")                                                             \
    X(ST_INTERNAL, "internal error")                                                               \
    X(ST_FULL, "no room on the disk")

enum status {
#define X(name, text) name,
    STATUS_MAP(X)
#undef X
};

const char *status_name(enum status st); /* "ST_OK"; static */
const char *status_text(enum status st); /* "ok"; static */

/* A program's exit status, for schedulers: 0; EXIT_RETRY where a restart may help (a peer or
 * memory that is not there, a port in use, a full disk, a lost device); else EXIT_PERMANENT. */
enum { EXIT_PERMANENT = 1, EXIT_USAGE = 2, EXIT_RETRY = 138 };
int status_exit_code(enum status st);
/* Of a file that could not be opened or used: ST_IO or ST_NOMEM where that may pass (a full disk,
 * no descriptors, a failing device), ST_INVALID where it stays until somebody changes the path or
 * what is there. */
enum status status_of_errno(int err);
/* Of a file that could not be written to its end: ST_FULL (the disk, a quota), ST_IO. */
enum status status_of_writing(int err);
/* Of a file that could not be read. ST_NOT_FOUND: it is not there; ST_NOMEM: this process or its
 * host lacks memory or descriptors; ST_IO: any other, none of which says what is in the file. */
enum status status_of_reading(int err);
/* strerror, and for EFBIG and EMFILE the limit that is the cause; of the thread until its next
 * call. */
const char *status_errno_text(int err);

/* Runs CALL; if it fails, keeps its code in the local `st` and jumps to the local label `done`. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st != ST_OK)                                                                           \
            goto done;                                                                             \
    } while (0)

/* For our own bugs alone, never for what a peer, a file or a flag says. Live in release builds. */
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            status_check_failed(__FILE__, __LINE__, #cond);                                        \
    } while (0)
void status_check_failed(const char *file, int line, const char *cond) __attribute__((noreturn));

#endif
