/* net/security/file_text.h - reads a small file as text, and detects that a file has changed.
 * Threads: any.
 * Errors:  ST_NOT_FOUND, ST_INVALID (too long, not a file), ST_IO, ST_NOMEM; not logged: `why`
 *          receives a text that continues a message after the file's name. */
#ifndef NET_SECURITY_FILE_TEXT_H
#define NET_SECURITY_FILE_TEXT_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

enum { FILE_TEXT_MOST = 1 << 20, FILE_WHY_BYTES = 160 };

/* Identity of a file and of its contents; all zeros: the file does not exist. If the path is a
 * symbolic link, the stamp is that of its target. */
struct file_text_stamp {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec written, changed;
};

struct file_text_stamp file_text_stamp_of(const char *path);
bool file_text_stamp_same(const struct file_text_stamp *a, const struct file_text_stamp *b);
/* Reads the file. The caller frees *out with file_text_free. Sets *open_to_others to true if users
 * other than the file's owner may read it. */
enum status file_text_read(const char *path, char **out, bool *open_to_others,
                           char why[FILE_WHY_BYTES]);
/* Wipes and frees the text, which may be a secret. NULL is fine. */
void file_text_free(char *text);

#endif
