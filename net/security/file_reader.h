/* net/security/file_reader.h - reads files in a separate thread. If a file system does not answer
 * (a hung NFS mount), only that thread hangs: the other threads wait at most FILE_READER_WAIT_MS
 * for it, and then use the values that were read before.
 *
 * The thread exists only while files are read, and blocks all signals. One read runs at a time.
 * Owns:    nothing; a reader is static and is never destroyed.
 * Threads: any; the caller holds no lock that `read` locks.
 * Errors:  none. `read` logs its own errors. If a file is not read in time, or no thread can be
 *          started to read it, the reader logs one line with the file's name. */
#ifndef NET_SECURITY_FILE_READER_H
#define NET_SECURITY_FILE_READER_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { FILE_READER_WAIT_MS = 1000 };

struct file_reader {
    /* reads the files; sets `file` before it opens each of them */
    void (*read)(struct file_reader *r);
    const char *keeps; /* end of the log line, for example "the previous tokens stay in use" */
    _Atomic(const char *) file; /* file that is being read */
    pthread_mutex_t lock;       /* guards the fields below */
    pthread_cond_t changed;     /* a read has ended; uses the monotonic clock */
    bool is_set_up;             /* `changed` is initialized */
    bool is_running;            /* the thread exists */
    const char *late; /* file on which the current read has hung for FILE_READER_WAIT_MS or longer:
                         file_reader_look does not wait for that read; NULL: none */
    uint64_t n_asked, n_done; /* reads requested, and requests that a read has served */
    int64_t began_ns;         /* start of the current read */
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
