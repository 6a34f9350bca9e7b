/* net/security/file_text.c - see file_text.h. */
#include "net/security/file_text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct file_text_stamp file_text_stamp_of(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return (struct file_text_stamp){.bytes = 0};
    return (struct file_text_stamp){st.st_dev, st.st_ino, st.st_size, st.st_mtim, st.st_ctim};
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool file_text_stamp_same(const struct file_text_stamp *a, const struct file_text_stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           same_time(&a->written, &b->written) && same_time(&a->changed, &b->changed);
}

static enum status read_all(int fd, char *text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        ssize_t got = read(fd, text + at, n - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return status_of_reading(errno);
        if (got == 0)
            break;
        at += (size_t)got;
    }
    text[at] = 0;
    return ST_OK;
}

enum status file_text_read(const char *path, char **out, bool *open_to_others,
                           char why[FILE_WHY_BYTES])
{
    struct stat info;
    char *text = NULL;
    enum status st = ST_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) < 0) {
        st = status_of_reading(errno);
        snprintf(why, FILE_WHY_BYTES, "cannot be read: %s", status_errno_text(errno));
        goto done;
    }
    if (!S_ISREG(info.st_mode) || info.st_size > FILE_TEXT_MOST) {
        snprintf(why, FILE_WHY_BYTES, "is not a regular file, or has more than %d bytes",
                 FILE_TEXT_MOST);
        TRY(ST_INVALID);
    }
    text = calloc(1, (size_t)info.st_size + 1);
    snprintf(why, FILE_WHY_BYTES, "cannot be read: out of memory");
    TRY(text ? ST_OK : ST_NOMEM);
    snprintf(why, FILE_WHY_BYTES, "cannot be read");
    TRY(read_all(fd, text, (size_t)info.st_size));
    *out = text;
    text = NULL;
    *open_to_others = (info.st_mode & (S_IRWXG | S_IRWXO)) != 0;
done:
    file_text_free(text);
    if (fd >= 0)
        close(fd);
    return st;
}

void file_text_free(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}
