/* net/security/file_text.h - a small file as text, and whether it is another one than before.
 * Threads: any. Errors: ST_NOT_FOUND, ST_INVALID (too long, no file), ST_IO, ST_NOMEM; not logged,
 * words in `why` that go on after the file's name. */
#ifndef NET_SECURITY_FILE_TEXT_H
#define NET_SECURITY_FILE_TEXT_H
#include "base/status.h"
#include <stddef.h>
#include <sys/stat.h>

enum { FILE_TEXT_MOST = 1 << 20, FILE_WHY_BYTES = 160 };

/* What a file is known by; zeros: it is not there. Links are followed. */
struct file_text_stamp {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec written, changed;
};

struct file_text_stamp file_text_stamp_of(const char *path);
int file_text_stamp_same(const struct file_text_stamp *a, const struct file_text_stamp *b);
/* *out: to be given to file_text_free; *open_to_others: not its owner alone may read it. */
enum status file_text_read(const char *path, char **out, int *open_to_others,
                           char why[FILE_WHY_BYTES]);
/* Wipes it: it may be a secret. NULL is fine. */
void file_text_free(char *text);

#endif
