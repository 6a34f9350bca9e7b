/* tests/segment_test.c - segments: this process and another process read the data. Other files that
 * a peer may name are refused without being opened. Also tests the table of peers' segments. */
#include "net/shm/peer_segments.h"
#include "tests/check.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 10000, HEAD = 4096 };

static char why[SEGMENT_WHY_BYTES];

/* Error of fallocate(). ENOSPC applies beyond reserve_limit; after EINTR the next call succeeds. */
static int reserve_error;
static off_t reserve_limit;

int fallocate(int fd, int mode, off_t offset, off_t n)
{
    if (reserve_error && offset + n > reserve_limit) {
        errno = reserve_error;
        if (errno == EINTR)
            reserve_error = 0;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, n);
}

static int count_fds(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static struct segment *make(struct segment_name *name)
{
    struct segment *s;
    assert_int_equal(segment_create(BYTES, &s, why), ST_OK);
    segment_name_of(s, name);
    assert_int_equal(name->bytes, BYTES);
    return s;
}

static void segment_is_read_by_reference(void **state)
{
    int before = count_fds();
    struct segment_name name;
    struct segment *s = make(&name), *peer;
    uint8_t *data = segment_data(s);
    assert_int_equal((uintptr_t)data % 64, 0);
    assert_int_equal(segment_open(&name, &peer, why), ST_OK);
    for (int i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i * 7);
    assert_memory_equal(segment_at(peer, 0, BYTES), data, BYTES);
    segment_unref(s); /* the reader's mapping stays */
    const uint8_t *seen = segment_at(peer, 4, 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(seen[i], (uint8_t)((i + 4) * 7));
    assert_int_equal(segment_open(&name, &s, why), ST_MISMATCH);
    segment_unref(segment_ref(peer));
    segment_unref(peer);
    segment_unref(NULL);
    assert_int_equal(count_fds(), before);
}

static void offsets_outside_are_refused(void **state)
{
    struct segment_name name;
    struct segment *s = make(&name);
    const char *data = segment_data(s);
    assert_non_null(segment_at(s, 0, BYTES));
    assert_non_null(segment_at(s, BYTES - 4, 4));
    assert_null(segment_at(s, BYTES - 4, 5));
    assert_null(segment_at(s, BYTES + 4, 0));
    assert_null(segment_at(s, 3, 4));
    assert_non_null(segment_at(s, 2, 4));
    assert_null(segment_at(s, UINT64_MAX - 3, 8));
    assert_null(segment_at(s, 4, SIZE_MAX));
    assert_null(segment_at(NULL, 0, 0));
    assert_int_equal(segment_find(s, data, BYTES), 1);
    assert_int_equal(segment_find(s, data + 8, BYTES - 8), 9);
    assert_int_equal(segment_find(s, data + 8, BYTES - 7), 0);
    assert_int_equal(segment_find(s, data + 7, 4), 0);
    assert_int_equal(segment_find(s, data - 4, 4), 0);
    assert_int_equal(segment_find(s, data + BYTES + 4, 4), 0);
    assert_int_equal(segment_find(s, why, 4), 0);
    assert_int_equal(segment_find(NULL, data, 4), 0);
    segment_unref(s);
    assert_int_not_equal(segment_create(0, &s, why), ST_OK);
    assert_int_not_equal(segment_create(SIZE_MAX, &s, why), ST_OK);
}

static void stamp_changes_with_each_write(void **state)
{
    struct segment_name name;
    struct segment *s = make(&name), *peer;
    char *data = (char *)segment_data(s) + SEGMENT_STAMP_BYTES;
    assert_int_equal(segment_open(&name, &peer, why), ST_OK);
    const char *seen = segment_at(peer, SEGMENT_STAMP_BYTES, 8);
    for (uint64_t i = 1; i < 4; i++) {
        segment_restamp(data);
        assert_true(segment_stamp(data) == i);
        assert_true(segment_stamp(seen) == i);
    }
    *(uint64_t *)(data - SEGMENT_STAMP_BYTES) = UINT64_MAX;
    segment_restamp(data);
    assert_true(segment_stamp(seen) == 1); /* 0 is not a stamp */
    segment_unref(s);
    segment_unref(peer);
}

/* Returns true if another process, which has only the name, reads the data. */
static bool read_elsewhere(const struct segment_name *name)
{
    struct segment *s;
    pid_t pid = fork();
    if (pid == 0) {
        close((int)name->fd);
        bool right =
            segment_open(name, &s, why) == ST_OK && !memcmp(segment_at(s, 400, 6), "hello", 6);
        _exit(right ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

static void other_process_reads_segment(void **state)
{
    struct segment_name name;
    struct segment *s = make(&name);
    assert_false(read_elsewhere(&name));
    memcpy((char *)segment_data(s) + 400, "hello", 6);
    assert_true(read_elsewhere(&name));
    segment_unref(s);
}

/* Returns true if another process of the same user cannot change the data. */
static bool only_reads(const struct segment_name *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/fd/%u", name->pid, name->fd);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(path, O_RDWR);
        bool changed =
            fd >= 0 && (mmap(NULL, HEAD, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED ||
                        pwrite(fd, "x", 1, HEAD) == 1 || ftruncate(fd, HEAD) == 0 ||
                        syscall(SYS_fallocate, fd, 3, 0L, (long)HEAD) == 0);
        void *map = fd < 0 ? MAP_FAILED : mmap(NULL, HEAD, PROT_READ, MAP_SHARED, fd, 0);
        changed |= map != MAP_FAILED && mprotect(map, HEAD, PROT_READ | PROT_WRITE) == 0;
        _exit(changed);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

static void only_the_owner_writes(void **state)
{
    struct segment_name name;
    struct segment *s = make(&name), *peer;
    assert_true(only_reads(&name));
    memcpy((char *)segment_data(s) + 400, "hello", 6);
    assert_true(read_elsewhere(&name));
    assert_int_equal(segment_open(&name, &peer, why), ST_OK);
    assert_int_not_equal(
        mprotect((void *)(uintptr_t)segment_at(peer, 0, 1) - HEAD, HEAD, PROT_READ | PROT_WRITE),
        0);
    segment_unref(peer);
    segment_unref(s);
}

static void missing_memory_is_an_error(void **state)
{
    struct segment *s = NULL;
    static const int errors[] = {ENOSPC, ENOMEM, EFBIG};
    int before = count_fds();
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        reserve_error = errors[i];
        assert_int_equal(segment_create(BYTES, &s, why), ST_NOMEM);
        assert_null(s);
        assert_non_null(strstr(why, strerror(errors[i])));
    }
    reserve_error = ENOSPC; /* a sparse segment needs little memory at first */
    reserve_limit = HEAD;
    assert_int_equal(segment_create_sparse(BYTES, &s, why), ST_OK);
    assert_int_equal(segment_reserve(s, 4000, 100, why), ST_NOMEM);
    reserve_limit = HEAD + 5000;
    assert_int_equal(segment_reserve(s, 4000, 1000, why), ST_OK);
    assert_int_equal(segment_reserve(s, 4000, 1001, why), ST_NOMEM);
    memset((char *)segment_data(s) + 4000, 1, 1000);
    segment_unref(s);
    reserve_error = EINTR; /* a signal arrived; the call is repeated */
    reserve_limit = 0;
    assert_int_equal(segment_create(BYTES, &s, why), ST_OK);
    assert_int_equal(reserve_error, 0);
    segment_unref(s);
    assert_int_equal(count_fds(), before);
}

static void refuse(struct segment_name name, uint32_t fd)
{
    struct segment *s = NULL;
    int before = count_fds();
    name.fd = fd;
    why[0] = 0;
    assert_int_equal(segment_open(&name, &s, why), ST_MISMATCH);
    assert_null(s);
    assert_true(strlen(why) > 10);
    assert_int_equal(count_fds(), before);
}

static void wrong_names_are_refused(void **state)
{
    struct segment_name name, wrong;
    struct segment *s = make(&name);
    wrong = name;
    wrong.nonce[15] ^= 1;
    refuse(wrong, name.fd);
    static const uint64_t sizes[] = {0, 4, BYTES - 1, BYTES + 1, (uint64_t)1 << 40, UINT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        wrong = name;
        wrong.bytes = sizes[i];
        refuse(wrong, name.fd);
    }
    refuse(name, 99999);
    wrong = name;
    wrong.pid = 0x7fffffff;
    refuse(wrong, name.fd);
    wrong.pid = 0;
    refuse(wrong, name.fd);
    segment_unref(s);
}

/* Makes a file in memory whose head contains the name's values. */
static int forge(const struct segment_name *name, const char *label, unsigned flags, int seals,
                 off_t bytes)
{
    int fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (fd < 0)
        return fd;
    assert_int_equal(ftruncate(fd, bytes), 0);
    if (!(flags & MFD_HUGETLB)) {
        assert_int_equal(pwrite(fd, name->nonce, sizeof name->nonce, 0), sizeof name->nonce);
        assert_int_equal(pwrite(fd, &name->bytes, 8, sizeof name->nonce), 8);
    }
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static struct segment *make_lent(struct segment_name *name)
{
    struct segment *s;
    assert_int_equal(segment_create_lent(BYTES, &s, why), ST_OK);
    segment_name_of(s, name);
    return s;
}

static bool may_write(const struct segment_name *name)
{
    struct segment *s = NULL;
    if (segment_open_to_write(name, &s, why) != ST_OK)
        assert_null(s);
    segment_unref(s);
    return s != NULL;
}

/* The peer's writes arrive. After it has opened the segment no other process can write there, and
 * the owner cannot free memory. */
static void one_peer_writes_a_lent_segment(void **state)
{
    int before = count_fds();
    struct segment_name name, wrong;
    struct segment *s = make_lent(&name), *peer;
    assert_false(only_reads(&name));
    wrong = name;
    wrong.nonce[3] ^= 1;
    assert_false(may_write(&wrong)); /* this attempt does not seal the file */
    assert_int_equal(segment_open_to_write(&name, &peer, why), ST_OK);
    memcpy((char *)segment_data(peer) + 400, "hello", 6);
    assert_string_equal((char *)segment_data(s) + 400, "hello");
    assert_true(only_reads(&name));
    assert_false(may_write(&name));
    assert_int_not_equal(
        fallocate((int)name.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HEAD), 0);
    segment_unref(s);
    memset(segment_data(peer), 1, BYTES); /* no harm */
    segment_unref(peer);
    assert_int_equal(count_fds(), before);
}

static void only_lent_segments_are_opened_to_write(void **state)
{
    struct segment_name name = {.pid = (uint32_t)getpid(), .bytes = BYTES, .nonce = "abc"};
    struct segment_name reads;
    struct segment *s = make(&reads);
    assert_false(may_write(&reads));
    segment_unref(s);
    static const int seals[] = {0, F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE,
                                F_SEAL_SHRINK | F_SEAL_SEAL, F_SEAL_SHRINK | F_SEAL_WRITE};
    for (size_t i = 0; i < sizeof seals / sizeof *seals; i++) {
        int fd = forge(&name, "weir-payloads", 0, seals[i], HEAD + BYTES);
        name.fd = (uint32_t)fd;
        assert_false(may_write(&name));
        close(fd);
    }
}

/* Makes a file that a peer lends, with memory for a range of it. */
static int forge_reserved(struct segment_name *name, off_t at, off_t bytes)
{
    int fd = forge(name, "weir-payloads", 0, 0, HEAD + BYTES);
    name->fd = (uint32_t)fd;
    if (bytes)
        assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, at, bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

static blkcnt_t n_blocks(int fd)
{
    struct stat file;
    assert_int_equal(fstat(fd, &file), 0);
    return file.st_blocks;
}

/* Memory that a peer lends is not counted as memory of this process. */
static void lent_segment_has_its_memory(void **state)
{
    struct segment_name name = {.pid = (uint32_t)getpid(), .bytes = BYTES, .nonce = "abc"};
    static const off_t reserved[] = {0, BYTES - HEAD};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        int fd = forge_reserved(&name, 0, reserved[i]);
        blkcnt_t before = n_blocks(fd);
        assert_false(may_write(&name));
        assert_non_null(strstr(why, "has not reserved"));
        assert_int_equal(n_blocks(fd), before);
        close(fd);
    }
    int fd = forge_reserved(&name, 0, HEAD + BYTES);
    assert_true(may_write(&name));
    close(fd);
    /* The memory is after the end of the file. */
    fd = forge_reserved(&name, 4 * HEAD, HEAD + BYTES);
    reserve_error = ENOSPC;
    reserve_limit = 0;
    assert_false(may_write(&name));
    reserve_error = 0;
    close(fd);
}

static void renewed_memory_is_out_of_reach(void **state)
{
    int before = count_fds();
    struct segment_name name, next;
    struct segment *s = make_lent(&name), *peer, *other;
    char *data = segment_data(s);
    assert_int_equal(segment_open_to_write(&name, &peer, why), ST_OK);
    memset(segment_data(peer), 'a', BYTES);
    reserve_error = ENOMEM;
    reserve_limit = 0;
    assert_int_equal(segment_renew(s, why), ST_NOMEM);
    reserve_error = 0;
    memset(segment_data(peer), 'b', 10); /* an error has changed nothing */
    assert_int_equal(segment_renew(s, why), ST_OK);
    assert_ptr_equal(segment_data(s), data);
    memset(segment_data(peer), 'c', BYTES); /* a server still writes to the replaced memory */
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(data[i], i < 10 ? 'b' : 'a');
    segment_name_of(s, &next);
    assert_int_equal(next.bytes, BYTES);
    assert_memory_not_equal(next.nonce, name.nonce, sizeof name.nonce);
    assert_false(may_write(&name));
    assert_int_equal(segment_open_to_write(&next, &other, why), ST_OK);
    memset(segment_data(other), 'd', BYTES);
    assert_int_equal(data[BYTES - 1], 'd');
    segment_unref(other);
    segment_unref(peer);
    segment_unref(s);
    assert_int_equal(count_fds(), before);
}

static void detached_memory_is_no_longer_read(void **state)
{
    int before = count_fds();
    struct segment_name name;
    struct segment *s, *peer;
    assert_int_equal(segment_create(BYTES, &s, why), ST_OK);
    char *data = segment_data(s);
    memset(data, 'a', BYTES);
    segment_name_of(s, &name);
    assert_int_equal(segment_open(&name, &peer, why), ST_OK);
    const char *read = segment_at(peer, 0, BYTES);
    assert_int_equal(segment_detach(s, why), ST_OK);
    assert_ptr_equal(segment_data(s), data);
    for (int i = 0; i < BYTES; i++) {
        assert_int_equal(data[i], 'a');
        data[i] = 'b';
        assert_int_equal(read[i], 'a');
    }
    segment_unref(peer);
    segment_unref(s);
    assert_int_equal(count_fds(), before);
}

static void values_end_with_their_segment(void **state)
{
    int before = count_fds();
    struct peer_segments l;
    struct segment_name names[2];
    struct segment *s = make(&names[0]), *lent = make_lent(&names[1]), *found;
    bool writes = false;
    peer_segments_init(&l);
    assert_true(peer_segments_put(&l, 1, 7, names, &writes, why));
    assert_true(writes);
    found = peer_segments_find(&l, 1, 7);
    memcpy(segment_data(segment_values(found)), "hello", 6);
    assert_string_equal((char *)segment_data(lent), "hello");
    segment_unref(found);
    assert_true(peer_segments_put(&l, 1, 7, names, &writes, why)); /* sealed by now */
    assert_false(writes);
    found = peer_segments_find(&l, 1, 7);
    assert_null(segment_values(found));
    segment_unref(found);
    names[0].bytes = 0;
    assert_false(peer_segments_put(&l, 1, 7, names, &writes, why));
    assert_false(writes);
    peer_segments_free(&l);
    segment_unref(s);
    segment_unref(lent);
    assert_int_equal(count_fds(), before);
}

static void forged_files_are_refused(void **state)
{
    struct segment_name name = {.pid = (uint32_t)getpid(), .bytes = BYTES, .nonce = "abc"};
    struct segment *s;
    int good = forge(&name, "weir-payloads", 0, F_SEAL_SHRINK, HEAD + BYTES);
    name.fd = (uint32_t)good;
    assert_int_equal(segment_open(&name, &s, why), ST_OK);
    segment_unref(s);
    int bad[] = {forge(&name, "weir-payloads", 0, 0, HEAD + BYTES),
                 forge(&name, "weir-payloads", 0, F_SEAL_GROW, HEAD + BYTES),
                 forge(&name, "weir-payloads", 0, F_SEAL_SHRINK, HEAD + BYTES - 1),
                 forge(&name, "weir-payloads", 0, F_SEAL_SHRINK, 10),
                 forge(&name, "other", 0, F_SEAL_SHRINK, HEAD + BYTES)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        refuse(name, (uint32_t)bad[i]);
        close(bad[i]);
    }
    int huge = forge(&name, "weir-payloads", MFD_HUGETLB, F_SEAL_SHRINK, 2 << 20);
    name.bytes = (2 << 20) - HEAD;
    if (huge >= 0) { /* huge pages may be missing at the first access */
        refuse(name, (uint32_t)huge);
        assert_non_null(strstr(why, "not that of a segment"));
        close(huge);
    }
    close(good);
}

/* The files are not even opened: a FIFO would get a reader, or wait for a writer. */
static void devices_and_pipes_are_not_opened(void **state)
{
    struct segment_name name = {.pid = (uint32_t)getpid(), .bytes = BYTES, .nonce = "abc"};
    char path[] = "/tmp/weir-test-XXXXXX", fifo[64];
    int pair[2], ends[2];
    assert_non_null(mkdtemp(path));
    snprintf(fifo, sizeof fifo, "%s/memfd:weir-payloads", path);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int fds[] = {open("/dev/zero", O_RDWR),
                 open("/dev/null", O_RDONLY),
                 open("/", O_RDONLY | O_DIRECTORY),
                 open(fifo, O_RDWR),
                 0,
                 0,
                 0};
    assert_int_equal(pipe(pair), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    fds[4] = pair[0];
    fds[5] = pair[1];
    fds[6] = ends[0];
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        assert_true(fds[i] >= 0);
        refuse(name, (uint32_t)fds[i]);
        assert_non_null(strstr(why, "not that of a segment"));
        close(fds[i]);
    }
    close(ends[1]);
    unlink(fifo);
    rmdir(path);
}

static bool put(struct peer_segments *l, int member, uint64_t incarnation,
                const struct segment_name *name)
{
    const struct segment_name names[2] = {*name};
    bool writes = true;
    bool lends = peer_segments_put(l, member, incarnation, names, &writes, why);
    assert_false(writes);
    return lends;
}

static void each_number_has_one_segment(void **state)
{
    const struct segment_name none = {.bytes = 0};
    struct segment_name name[2], wrong;
    struct segment *s[2] = {make(&name[0]), make(&name[1])}, *found;
    struct peer_segments l;
    int before = count_fds();
    peer_segments_init(&l);
    assert_null(peer_segments_find(&l, 0, 7));
    assert_int_equal(put(&l, 5, 7, &name[0]), 1);
    assert_null(peer_segments_find(&l, 5, 8));
    assert_null(peer_segments_find(&l, 4, 7));
    assert_null(peer_segments_find(&l, UINT32_MAX, 7));
    found = peer_segments_find(&l, 5, 7);
    assert_non_null(found);
    assert_int_equal(put(&l, 5, 8, &name[1]), 1); /* the member joined again */
    assert_null(peer_segments_find(&l, 5, 7));
    peer_segments_drop(&l, 5, found); /* the old stream's end does not drop the new segment */
    segment_unref(found);
    found = peer_segments_find(&l, 5, 8);
    assert_non_null(found);
    peer_segments_leave(&l, 7);
    segment_unref(peer_segments_find(&l, 5, 8));
    peer_segments_drop(&l, 5, found);
    segment_unref(found);
    assert_null(peer_segments_find(&l, 5, 8));
    assert_int_equal(put(&l, 0, 9, &name[0]), 1);
    assert_int_equal(put(&l, 2, 9, &name[0]), 1); /* joins the next generation */
    peer_segments_leave(&l, 9);
    assert_null(peer_segments_find(&l, 0, 9));
    assert_null(peer_segments_find(&l, 2, 9));
    assert_int_equal(put(&l, 0, 9, &name[0]), 1);
    wrong = name[0];
    wrong.nonce[0] ^= 1;
    assert_int_equal(put(&l, 0, 9, &wrong), 0);
    assert_null(peer_segments_find(&l, 0, 9));
    assert_int_equal(put(&l, 900, 9, &none), 0);
    assert_int_equal(l.n, 6);
    assert_int_equal(put(&l, 3, 9, &name[1]), 1);
    peer_segments_free(&l);
    assert_int_equal(count_fds(), before);
    segment_unref(s[0]);
    segment_unref(s[1]);
}

int main(void)
{
    return RUN_TESTS(segment_is_read_by_reference, offsets_outside_are_refused,
                     wrong_names_are_refused, other_process_reads_segment, forged_files_are_refused,
                     devices_and_pipes_are_not_opened, stamp_changes_with_each_write,
                     each_number_has_one_segment, only_the_owner_writes, missing_memory_is_an_error,
                     one_peer_writes_a_lent_segment, only_lent_segments_are_opened_to_write,
                     lent_segment_has_its_memory, renewed_memory_is_out_of_reach,
                     detached_memory_is_no_longer_read, values_end_with_their_segment);
}
