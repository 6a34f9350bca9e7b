/* base/status.h - the error codes that all functions return, and TRY, which returns them upwards.
 * The function that finds an error logs it once, with the cause and the fix; its callers return the
 * code without logging. Outputs are written only on ST_OK.
 * Threads: any. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

/* Name and text of each code. The codes are grouped by the cause of the failure: request, peer, or
 * process. */
#define STATUS_MAP(X)                                                                              \
    X(ST_OK, "ok")                                                                                 \
    /* caused by the request: it cannot be served, and the caller should change it */              \
    X(ST_INVALID, "invalid argument or input")                                                     \
    X(ST_RANGE, "out of range")                                                                    \
    X(ST_NOT_FOUND, "not found")                                                                   \
    X(ST_CORRUPT, "corrupt data")                                                                  \
    X(ST_MISMATCH, "does not match")                                                               \
    X(ST_UNSUPPORTED, "not supported")                                                             \
    /* caused by the peer: the request may succeed later, or with another peer */                  \
    X(ST_UNAVAILABLE, "peer unavailable")                                                          \
    X(ST_DEADLINE, "deadline passed")                                                              \
    X(ST_CANCELLED, "cancelled")                                                                   \
    X(ST_REFUSED, "refused by the peer")                                                           \
    X(ST_PROTOCOL, "protocol violated by the peer")                                                \
    X(ST_REBASED, "the servers have gone back to an earlier step")                                 \
    /* caused by the process or its host */                                                        \
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

/* A program's exit status, for schedulers: 0 after success; EXIT_RETRY if a restart may help (a
 * peer or memory was missing, a port was in use, a disk was full, a device was lost); otherwise
 * EXIT_PERMANENT. */
enum { EXIT_PERMANENT = 1, EXIT_USAGE = 2, EXIT_RETRY = 138 };
int status_exit_code(enum status st);
/* Returns the code for a file that could not be opened or used: ST_IO or ST_NOMEM if a later
 * attempt may succeed (a full disk, no descriptors, a failing device), ST_INVALID if the operator
 * must change the path or the file. */
enum status status_of_errno(int err);
/* Returns the code for a failed write: ST_FULL (the disk, a quota) or ST_IO. */
enum status status_of_writing(int err);
/* Returns the code for a failed read. ST_NOT_FOUND: the file does not exist; ST_NOMEM: this process
 * or its host lacks memory or descriptors; ST_IO: any other cause, which need not be a fault of the
 * file. */
enum status status_of_reading(int err);
/* Returns the text of strerror, and for EFBIG and EMFILE also names the limit that was exceeded. It
 * is valid until the thread's next call. */
const char *status_errno_text(int err);

/* Runs CALL; if it fails, keeps its code in the local `st` and jumps to the local label `done`. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st != ST_OK)                                                                           \
            goto done;                                                                             \
    } while (0)

/* Aborts if the condition is false, in release builds too. Only for bugs in Weir, never for the
 * content of messages, files or flags. */
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            status_check_failed(__FILE__, __LINE__, #cond);                                        \
    } while (0)
void status_check_failed(const char *file, int line, const char *cond) __attribute__((noreturn));

#endif
