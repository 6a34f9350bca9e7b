/* net/security/file_reader.h - reads files in a separate thread. A file system that does not
 * answer (a hung NFS mount) stops that thread; all other threads use the values that were read
 * before, after at most one wait.
 *
 * A thread exists only while files are read, with all signals blocked. One read runs at a time.
 * Owns:    nothing; a reader is static and is never destroyed.
 * Threads: any, with no lock held that `read` locks.
 * Errors:  none; `read` logs its own. A file that is not read in time, or has no thread to read
 *          it, is one line with its name. */
#ifndef NET_SECURITY_FILE_READER_H
#define NET_SECURITY_FILE_READER_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { FILE_READER_WAIT_MS = 1000 };

struct file_reader {
    void (*read)(struct file_reader *r); /* names each file in `file` before it touches it */
    const char *keeps;                   /* text for the log: "the previous tokens stay in use" */
    _Atomic(const char *) file;          /* file that is being read */
    pthread_mutex_t lock;                /* guards the fields below */
    pthread_cond_t changed;              /* a read has ended; uses the monotonic clock */
    bool is_set_up;                      /* `changed` is initialized */
    bool is_running;                     /* the thread exists */
    const char *late;                    /* file that the read under way waits for beyond its time:
                                            no look waits for it; NULL: none */
    uint64_t n_asked, n_done;            /* looks requested, and looks that a read has served */
    int64_t began_ns;                    /* start of the read under way */
};
#define FILE_READER(read_, keeps_)                                                                 \
    {                                                                                              \
        .read = (read_), .keeps = (keeps_), .lock = PTHREAD_MUTEX_INITIALIZER                      \
    }

/* Starts a read of the files. Returns when a read that began after this call has ended, or when
 * the current read has lasted FILE_READER_WAIT_MS. */
void file_reader_look(struct file_reader *r);
/* Reads the files and waits until the read has ended, however long that lasts, because there are
 * no earlier values to use. */
void file_reader_look_first(struct file_reader *r);

#endif
