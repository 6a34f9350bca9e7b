/* net/shm/segment.c - see segment.h. The file begins with a page that contains the secret number
 * and the size; the data follow.
 *
 * It must be harmless to open the name that a peer has sent, even if the name does not refer to a
 * segment. The path in /proc is first opened with O_PATH, which opens neither a device nor a FIFO.
 * All later steps use the descriptor that this call returned, so the peer cannot exchange the file.
 * The file is mapped only if it is in memory and is sealed against shrinking, so that no read can
 * end in a signal. A file of huge pages is not mapped, because a page may be missing at the first
 * access. */
#include "net/shm/segment.h"
#include "base/fork_guard.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { HEAD_BYTES = 4096, PATH_BYTES = 64 };
#define MEMFD_NAME "weir-payloads"
#define MEMFD_NOEXEC 8u /* MFD_NOEXEC_SEAL, which older headers lack */
static const uint64_t max_bytes = (uint64_t)1 << 46;

struct head {
    uint8_t nonce[SEGMENT_NONCE_BYTES];
    uint64_t bytes;
};

struct segment {
    struct fork_guard guard; /* must be the first field, because leave_to_parent casts */
    _Atomic int refs;
    int fd; /* owner's descriptor, which is part of the segment's name; -1: this process is not the
               owner */
    uint8_t *map;
    size_t bytes; /* size of the data */
    uint8_t nonce[SEGMENT_NONCE_BYTES];
    struct segment *values; /* segment_set_values; NULL: none */
};

static enum status explain_failure(char why[SEGMENT_WHY_BYTES], enum status st, const char *fmt,
                                   ...) __attribute__((format(printf, 3, 4)));

static enum status explain_failure(char why[SEGMENT_WHY_BYTES], enum status st, const char *fmt,
                                   ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, SEGMENT_WHY_BYTES, fmt, ap);
    va_end(ap);
    return st;
}

/* Reserves memory for a range of the file; offset 0 is the file's first page. */
static enum status reserve_memory(int fd, size_t offset, size_t bytes, char why[SEGMENT_WHY_BYTES])
{
    int err;
    do
        err = fallocate(fd, 0, (off_t)offset, (off_t)bytes) == 0 ? 0 : errno;
    while (err == EINTR);
    if (!err)
        return ST_OK;
    return explain_failure(why, ST_NOMEM, "no memory for %zu bytes: %s", bytes,
                           status_errno_text(err));
}

/* Creates the owner's file and seals it at this size. Returns its descriptor, or -1 and a reason in
 * `why`. */
static int make_file(size_t bytes, char why[SEGMENT_WHY_BYTES])
{
    int fd = memfd_create(MEMFD_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | MEMFD_NOEXEC);
    if (fd < 0 && errno == EINVAL) /* EINVAL: Linux before 6.3 */
        fd = memfd_create(MEMFD_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, (off_t)(HEAD_BYTES + bytes)) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
        return fd;
    explain_failure(why, ST_UNSUPPORTED, "cannot create a file in memory: %s",
                    status_errno_text(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Replaces a forked child's mapping by its own memory of zeros, so that the child neither changes
 * the data that peers read nor keeps the segment after the parent has ended. */
static void leave_to_parent(struct fork_guard *g)
{
    struct segment *s = (struct segment *)g;
    (void)mmap(s->map, HEAD_BYTES + s->bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

/* Maps the file. The result owns fd if `owned` is set. */
static struct segment *map_file(int fd, size_t bytes, bool writable, bool owned)
{
    struct segment *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    atomic_init(&s->refs, 1);
    s->bytes = bytes;
    s->map =
        mmap(NULL, HEAD_BYTES + bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    s->fd = owned ? fd : -1;
    if (s->map != MAP_FAILED) {
        fork_guard_add(&s->guard, leave_to_parent);
        return s;
    }
    free(s);
    return NULL;
}

/* Mappings that can write stay so; a process that opens the file later can only read it, and no
 * process can free its memory. */
static enum status seal_writes(int fd, char why[SEGMENT_WHY_BYTES])
{
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
        return ST_OK;
    return explain_failure(why, ST_UNSUPPORTED, "it cannot be sealed against writing: %s",
                           strerror(errno));
}

static void write_head(struct segment *s, const struct head *head)
{
    memcpy(s->map, head, sizeof *head);
    memcpy(s->nonce, head->nonce, sizeof s->nonce);
}

/* Creates the file of a segment, and a new head. reserved: number of bytes of data for which memory
 * is reserved at once. */
static enum status make_reserved(size_t bytes, size_t reserved, struct head *head, int *fd,
                                 char why[SEGMENT_WHY_BYTES])
{
    *head = (struct head){.bytes = bytes};
    if (getrandom(head->nonce, sizeof head->nonce, 0) != sizeof head->nonce)
        return explain_failure(why, ST_UNSUPPORTED, "cannot get random numbers: %s",
                               strerror(errno));
    *fd = make_file(bytes, why);
    if (*fd < 0)
        return ST_UNSUPPORTED;
    enum status st = reserve_memory(*fd, 0, HEAD_BYTES + reserved, why);
    if (st != ST_OK)
        close(*fd);
    return st;
}

/* Creates a segment. lent: another process may write it. */
static enum status create(size_t bytes, size_t reserved, bool lent, struct segment **out,
                          char why[SEGMENT_WHY_BYTES])
{
    struct head head;
    int fd;
    if (bytes == 0 || bytes > max_bytes)
        return explain_failure(why, ST_UNSUPPORTED, "a segment of %zu bytes", bytes);
    enum status st = make_reserved(bytes, reserved, &head, &fd, why);
    if (st != ST_OK)
        return st;
    struct segment *s = map_file(fd, bytes, true, true);
    if (!s) {
        close(fd);
        return explain_failure(why, ST_NOMEM, "no address space for %zu bytes", bytes);
    }
    st = lent ? ST_OK : seal_writes(fd, why);
    if (st != ST_OK) {
        segment_unref(s);
        return st;
    }
    write_head(s, &head);
    *out = s;
    return ST_OK;
}

enum status segment_create(size_t bytes, struct segment **out, char why[SEGMENT_WHY_BYTES])
{
    return create(bytes, bytes, false, out, why);
}

enum status segment_create_sparse(size_t bytes, struct segment **out, char why[SEGMENT_WHY_BYTES])
{
    return create(bytes, 0, false, out, why);
}

enum status segment_create_lent(size_t bytes, struct segment **out, char why[SEGMENT_WHY_BYTES])
{
    return create(bytes, bytes, true, out, why);
}

enum status segment_renew(struct segment *s, char why[SEGMENT_WHY_BYTES])
{
    struct head head;
    int fd;
    enum status st = make_reserved(s->bytes, s->bytes, &head, &fd, why);
    if (st != ST_OK)
        return st;
    struct segment *copy = map_file(fd, s->bytes, true, false);
    if (copy) {
        memcpy(segment_data(copy), segment_data(s), s->bytes);
        segment_unref(copy);
    }
    if (!copy || mmap(s->map, HEAD_BYTES + s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      fd, 0) == MAP_FAILED) {
        close(fd);
        return explain_failure(why, ST_NOMEM, "no address space for %zu bytes", s->bytes);
    }
    close(s->fd);
    s->fd = fd;
    write_head(s, &head);
    return ST_OK;
}

/* The kernel copies a page when this process first writes to it. */
enum status segment_detach(struct segment *s, char why[SEGMENT_WHY_BYTES])
{
    if (mmap(s->map, HEAD_BYTES + s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, s->fd,
             0) != MAP_FAILED)
        return ST_OK;
    return explain_failure(why, ST_NOMEM, "no memory for a copy of %zu bytes: %s", s->bytes,
                           status_errno_text(errno));
}

enum status segment_reserve(struct segment *s, size_t offset, size_t bytes,
                            char why[SEGMENT_WHY_BYTES])
{
    if (bytes == 0 || offset > s->bytes || bytes > s->bytes - offset)
        return explain_failure(why, ST_RANGE, "%zu bytes at %zu are outside the segment", bytes,
                               offset);
    return reserve_memory(s->fd, HEAD_BYTES + offset, bytes, why);
}

/* Returns true if the descriptor refers to a file in memory that a program of Weir has made. */
static bool is_ours(int place, char why[SEGMENT_WHY_BYTES])
{
    static const char want[] = "/memfd:" MEMFD_NAME;
    char path[PATH_BYTES], target[sizeof want + 1];
    struct stat file;
    struct statfs fs;
    snprintf(path, sizeof path, "/proc/self/fd/%d", place);
    ssize_t n = readlink(path, target, sizeof target);
    if (n >= (ssize_t)sizeof want - 1 && !memcmp(target, want, sizeof want - 1) &&
        fstat(place, &file) == 0 && S_ISREG(file.st_mode) && fstatfs(place, &fs) == 0 &&
        fs.f_type == TMPFS_MAGIC)
        return true;
    explain_failure(why, ST_MISMATCH, "the name is not that of a segment");
    return false;
}

/* Opens the file that the name refers to; flags: O_RDONLY or O_RDWR. Returns its descriptor, or -1
 * and a reason in `why`. */
static int open_file(const struct segment_name *name, int flags, char why[SEGMENT_WHY_BYTES])
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/proc/%u/fd/%u", name->pid, name->fd);
    int place = open(path, O_PATH | O_CLOEXEC), fd = -1;
    if (place < 0) {
        explain_failure(why, ST_MISMATCH, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (is_ours(place, why)) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", place);
        fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            explain_failure(why, ST_MISMATCH, "the segment: %s", strerror(errno));
    }
    close(place);
    return fd;
}

/* Checks the file's size and seals: a valid file cannot shrink any more. */
static bool is_whole(int fd, uint64_t bytes, char why[SEGMENT_WHY_BYTES])
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &file) == 0 &&
        (uint64_t)file.st_size == HEAD_BYTES + bytes)
        return true;
    explain_failure(why, ST_MISMATCH, "the segment is not sealed, or not %llu bytes long",
                    (unsigned long long)bytes);
    return false;
}

/* Returns true if the file belongs to the name. */
static bool is_named(const struct segment *s, const struct segment_name *name,
                     char why[SEGMENT_WHY_BYTES])
{
    struct head head;
    memcpy(&head, s->map, sizeof head);
    if (!memcmp(head.nonce, name->nonce, sizeof head.nonce) && head.bytes == name->bytes)
        return true;
    explain_failure(why, ST_MISMATCH, "the name belongs to another program's segment now");
    return false;
}

/* Returns true if the owner has reserved all memory of the file. Otherwise the missing pages would
 * be counted as memory of this process when it writes there. */
static bool has_memory(int fd, size_t bytes, char why[SEGMENT_WHY_BYTES])
{
    struct stat file;
    if (fstat(fd, &file) == 0 && (uint64_t)file.st_blocks * 512 >= HEAD_BYTES + bytes)
        return true;
    explain_failure(why, ST_MISMATCH, "its owner has not reserved %zu bytes", bytes);
    return false;
}

/* Prevents all other processes from opening the file to write and from freeing its memory, and
 * checks that the memory is there. So no write can end in a signal. (The owner may have reserved
 * pages after the file's end instead of others. So this also reserves the whole file, which changes
 * nothing for an honest owner.) */
static bool claim(int fd, size_t bytes, char why[SEGMENT_WHY_BYTES])
{
    return seal_writes(fd, why) == ST_OK && has_memory(fd, bytes, why) &&
           reserve_memory(fd, 0, HEAD_BYTES + bytes, why) == ST_OK;
}

static enum status open_segment(const struct segment_name *name, bool to_write,
                                struct segment **out, char why[SEGMENT_WHY_BYTES])
{
    if (name->bytes == 0 || name->bytes > max_bytes)
        return explain_failure(why, ST_MISMATCH, "a segment of %llu bytes",
                               (unsigned long long)name->bytes);
    size_t bytes = (size_t)name->bytes;
    int fd = open_file(name, to_write ? O_RDWR : O_RDONLY, why);
    if (fd < 0)
        return ST_MISMATCH;
    struct segment *s = NULL;
    if (is_whole(fd, bytes, why) && !(s = map_file(fd, bytes, to_write, false)))
        explain_failure(why, ST_MISMATCH, "the segment cannot be mapped: %s", strerror(errno));
    bool good = s && is_named(s, name, why) && (!to_write || claim(fd, bytes, why));
    close(fd);
    if (!good) {
        segment_unref(s);
        return ST_MISMATCH;
    }
    memcpy(s->nonce, name->nonce, sizeof s->nonce);
    *out = s;
    return ST_OK;
}

enum status segment_open(const struct segment_name *name, struct segment **out,
                         char why[SEGMENT_WHY_BYTES])
{
    return open_segment(name, false, out, why);
}

enum status segment_open_to_write(const struct segment_name *name, struct segment **out,
                                  char why[SEGMENT_WHY_BYTES])
{
    return open_segment(name, true, out, why);
}

bool segment_is_claimed(const struct segment *s)
{
    int seals = fcntl(s->fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SEAL);
}

void segment_set_values(struct segment *s, struct segment *values)
{
    s->values = values;
}

struct segment *segment_values(const struct segment *s)
{
    return s ? s->values : NULL;
}

struct segment *segment_ref(struct segment *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void segment_unref(struct segment *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    segment_unref(s->values);
    fork_guard_remove(&s->guard);
    munmap(s->map, HEAD_BYTES + s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

void segment_name_of(const struct segment *s, struct segment_name *out)
{
    *out = (struct segment_name){.bytes = 0};
    if (!s)
        return;
    out->pid = (uint32_t)getpid();
    out->fd = (uint32_t)s->fd;
    out->bytes = s->bytes;
    memcpy(out->nonce, s->nonce, sizeof out->nonce);
}

void *segment_data(struct segment *s)
{
    return s->map + HEAD_BYTES;
}

const void *segment_at(const struct segment *s, uint64_t offset, size_t bytes)
{
    if (!s || offset % 2 || offset > s->bytes || bytes > s->bytes - offset)
        return NULL;
    return s->map + HEAD_BYTES + offset;
}

uint64_t segment_find(const struct segment *s, const void *data, size_t bytes)
{
    if (!s)
        return 0;
    uintptr_t begin = (uintptr_t)(s->map + HEAD_BYTES), at = (uintptr_t)data;
    if (at < begin || at - begin > s->bytes || bytes > s->bytes - (at - begin) || (at - begin) % 2)
        return 0;
    return at - begin + 1;
}

static _Atomic uint64_t *stamp_of(const void *data)
{
    return (_Atomic uint64_t *)((uintptr_t)data - SEGMENT_STAMP_BYTES);
}

/* The barriers here and in segment_restamp order the accesses: a reader that has read a byte
 * written after a call of segment_restamp then also reads the new stamp. */
uint64_t segment_stamp(const void *data)
{
    __sync_synchronize();
    return atomic_load_explicit(stamp_of(data), memory_order_relaxed);
}

void segment_restamp(void *data)
{
    _Atomic uint64_t *stamp = stamp_of(data);
    uint64_t next = atomic_load_explicit(stamp, memory_order_relaxed) + 1;
    atomic_store_explicit(stamp, next ? next : 1, memory_order_relaxed);
    __sync_synchronize();
}
