/* tests/files_durable_test.c - tests durable files. Each system call, in turn, fails or is the last
 * one before the process is killed or the machine loses power. Afterwards either the old file or
 * the new file exists, whole. After commit has returned, the new file exists. */
#include "base/process.h"
#include "files/durable.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/fault_io.h"
#include "tests/folder_rig.h"
#include "tests/skip.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

/* Two blocks that bypass the page cache where the file system supports it, and a last, unaligned
 * part that does not. */
enum { N_BYTES = (2 << 20) + 3000, MOST_CALLS = 40 };

static char folder[FOLDER_RIG_BYTES], path[96];

static int setup(void **state)
{
    folder_rig_new(folder);
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

/* Removes all files; returns how many of them were temporary ones. */
static int empty_folder(void)
{
    int n_left = 0;
    char name[512];
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.' && (!e->d_name[1] || e->d_name[1] == '.'))
            continue;
        n_left += strstr(e->d_name, ".tmp") != NULL;
        snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
        assert_int_equal(unlink(name), 0);
    }
    closedir(d);
    return n_left;
}

static int teardown(void **state)
{
    fault_io_set(NULL, FAULT_NONE, 0, 0);
    empty_folder();
    return rmdir(folder);
}

/* Writes the file. rewrite: its first bytes differ until the last call before the commit. */
static enum status write_file(char fill, bool rewrite)
{
    enum { N_FIRST = 1000 };
    static char data[N_BYTES], first[N_FIRST];
    memset(data, fill, sizeof data);
    memset(first, rewrite ? '-' : fill, sizeof first);
    struct durable f;
    enum status st = durable_begin(&f, path);
    if (st != ST_OK)
        return st;
    TRY(durable_write(&f, first, N_FIRST));
    TRY(durable_write(&f, data + N_FIRST, sizeof data - N_FIRST));
    if (rewrite)
        TRY(durable_rewrite(&f, data, N_FIRST));
    TRY(durable_commit(&f));
done:
    durable_end(&f);
    return st;
}

static enum status put(char fill)
{
    return write_file(fill, true);
}

/* Returns the letter that fills the file; 0: the file is missing; '?': it is damaged. */
static char content(void)
{
    static char data[N_BYTES + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, data, sizeof data);
    close(fd);
    for (int i = 1; i < N_BYTES && n == N_BYTES; i++)
        if (data[i] != data[0])
            return '?';
    return n == N_BYTES ? data[0] : '?';
}

static void failed_call_leaves_old_file(void **state)
{
    fault_io_set(folder, FAULT_NONE, 0, 0);
    assert_int_equal(put('a'), ST_OK);
    int n_calls = fault_io_count();
    assert_in_range(n_calls, 9, MOST_CALLS);
    for (int at = 1; at <= n_calls; at++) {
        fault_io_set(folder, FAULT_ERROR, at, at % 2 ? ENOSPC : EIO);
        enum status st = CAPTURE(put('b'));
        fault_io_set(folder, FAULT_NONE, 0, 0);
        if (st == ST_OK) { /* the last call closes the folder, and its failure does no harm */
            assert_int_equal(at, n_calls);
            continue;
        }
        assert_int_equal(st, at % 2 ? ST_FULL : ST_IO);
        assert_int_equal(capture_lines(), 1);
        assert_non_null(strstr(capture_text, folder));
        assert_non_null(strstr(capture_text, strerror(at % 2 ? ENOSPC : EIO)));
        /* after the rename the new file may exist, but commit did not promise it */
        assert_true(content() == 'a' || at >= n_calls - 2);
        assert_int_equal(put('a'), ST_OK);
        assert_int_equal(empty_folder(), 0);
        assert_int_equal(put('a'), ST_OK);
    }
}

/* Runs put('b') over 'a' in a child that dies at call number `at`. Returns 0 if the child makes
 * fewer calls. */
static int die_at(enum fault_kind kind, int at)
{
    pid_t pid = fork();
    if (pid == 0) {
        fault_io_set(folder, kind, at, 0);
        _exit(put('b') == ST_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == FAULT_EXIT);
    return WEXITSTATUS(status) == FAULT_EXIT;
}

static void crash_leaves_whole_file(void **state)
{
    for (enum fault_kind kind = FAULT_KILLED; kind <= FAULT_POWER_2; kind++) {
        int seen_new = 0;
        for (int at = 1;; at++) {
            assert_in_range(at, 1, MOST_CALLS);
            fault_io_set(NULL, FAULT_NONE, 0, 0);
            empty_folder();
            assert_int_equal(put('a'), ST_OK);
            int stopped = die_at(kind, at);
            char c = content();
            assert_true(c == 'a' || c == 'b');
            seen_new |= c == 'b';
            if (!stopped)
                break;
        }
        assert_true(seen_new);
    }
}

/* The machine loses power right after commit has returned. */
static void committed_file_survives_power_loss(void **state)
{
    for (enum fault_kind kind = FAULT_POWER; kind <= FAULT_POWER_2; kind++) {
        assert_int_equal(put('a'), ST_OK);
        pid_t pid = fork();
        if (pid == 0) {
            fault_io_set(folder, kind, 0, 0);
            if (put('b') != ST_OK || durable_remove(path) != ST_OK || put('c') != ST_OK)
                _exit(1);
            fault_io_stop();
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == FAULT_EXIT);
        assert_int_equal(content(), 'c');
    }
}

static void full_disk_is_reported(void **state)
{
    assert_int_equal(put('a'), ST_OK);
    struct rlimit before, small = {2000, RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    process_set_up();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    static const char data[N_BYTES] = "b";
    enum status st = CAPTURE(durable_put(path, data, sizeof data));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(st, ST_IO);
    assert_non_null(strstr(capture_text, "File too large"));
    assert_non_null(strstr(capture_text, "ulimit -f"));
    assert_int_equal(content(), 'a');
    assert_int_equal(empty_folder(), 0);
}

/* The sizes are no multiple of a block. One file system bypasses the page cache, the other does
 * not. */
static void large_files_are_written_whole(void **state)
{
    enum { N = (3 << 20) + 777 };
    static const char *const folders[] = {NULL, "/dev/shm"};
    char *data = malloc(N), *got = malloc(N + 1), other[96];
    for (int i = 0; i < N; i++)
        data[i] = (char)(i * 7 + i / 1000);
    for (int k = 0; k < 2; k++) {
        struct durable f;
        snprintf(other, sizeof other, "%s/weir_durable_%d", folders[k] ? folders[k] : folder,
                 (int)getpid());
        assert_int_equal(durable_begin(&f, other), ST_OK);
        for (size_t at = 0, n = 1; at < N; at += n, n = n * 3 + 1)
            assert_int_equal(durable_write(&f, data + at, n < N - at ? n : N - at), ST_OK);
        assert_int_equal(durable_commit(&f), ST_OK);
        assert_int_equal(f.bytes, N);
        durable_end(&f);
        FILE *file = fopen(other, "rbe");
        assert_non_null(file);
        assert_int_equal(fread(got, 1, N + 1, file), N);
        fclose(file);
        assert_memory_equal(got, data, N);
        assert_int_equal(durable_remove(other), ST_OK);
    }
    free(data);
    free(got);
}

/* The file is smaller than a block, so its first bytes are replaced in memory. */
static void small_file_is_rewritten(void **state)
{
    char text[8] = "";
    struct durable f;
    assert_int_equal(durable_begin(&f, path), ST_OK);
    assert_int_equal(durable_write(&f, "abcdef", 6), ST_OK);
    assert_int_equal(durable_rewrite(&f, "ABC", 3), ST_OK);
    assert_int_equal(durable_commit(&f), ST_OK);
    assert_int_equal(f.bytes, 6);
    durable_end(&f);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text, file), 6);
    fclose(file);
    assert_string_equal(text, "ABCdef");
}

static void missing_file_removes_without_error(void **state)
{
    assert_int_equal(durable_remove(path), ST_OK);
    assert_int_equal(put('a'), ST_OK);
    assert_int_equal(durable_remove(path), ST_OK);
    assert_int_equal(content(), 0);
}

/* Returns which text the file holds: 'o' or 'n'; 0: the file is missing; '?': another text. */
static char made_once(void)
{
    char text[16] = "";
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    return n == 8 && (!memcmp(text, "old text", 8) || !memcmp(text, "new text", 8)) ? text[0] : '?';
}

/* A file of durable_put_new exists whole or not at all, whichever system call fails or is the last
 * one before a crash. A second durable_put_new does not replace the file. */
static void new_file_is_made_once(void **state)
{
    assert_int_equal(durable_put_new(path, "old text", 8), ST_OK);
    assert_int_equal(CAPTURE(durable_put_new(path, "new text", 8)), ST_BUSY);
    assert_int_equal(capture_lines(), 0);
    assert_int_equal(made_once(), 'o');
    assert_int_equal(empty_folder(), 0);
    for (enum fault_kind kind = FAULT_ERROR; kind <= FAULT_POWER_2; kind++) {
        int seen_nothing = 0;
        for (int at = 1, more = 1; more; at++) {
            assert_in_range(at, 1, MOST_CALLS);
            pid_t pid = fork();
            if (pid == 0) {
                dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
                fault_io_set(folder, kind, at, EIO);
                enum status st = durable_put_new(path, "new text", 8);
                _exit(at > fault_io_count() ? 2 : st != ST_OK);
            }
            int status;
            assert_int_equal(waitpid(pid, &status, 0), pid);
            assert_true(WIFEXITED(status));
            char c = made_once();
            assert_true(c == 'n' || (c == 0 && WEXITSTATUS(status) != 0));
            seen_nothing |= c == 0;
            assert_int_equal(durable_put_new(path, "old text", 8), c == 'n' ? ST_BUSY : ST_OK);
            more = WEXITSTATUS(status) != 2;
            fault_io_set(NULL, FAULT_NONE, 0, 0);
            empty_folder();
        }
        assert_true(seen_nothing);
    }
    for (enum fault_kind kind = FAULT_POWER; kind <= FAULT_POWER_2; kind++) {
        pid_t pid = fork();
        if (pid == 0) { /* the machine loses power right after the call */
            fault_io_set(folder, kind, 0, 0);
            if (durable_put_new(path, "new text", 8) == ST_OK)
                fault_io_stop();
            _exit(1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == FAULT_EXIT);
        assert_int_equal(made_once(), 'n');
        empty_folder();
    }
}

/* On a file system without hard links durable_put_new replaces no file either, but a crash may
 * leave its own file empty. */
static void new_file_is_made_once_without_links(void **state)
{
    int n_calls = 0;
    for (int at = 1; n_calls == 0 || at <= n_calls; at++) { /* link() is one of the calls */
        fault_io_set(folder, FAULT_ERROR, at, EPERM);
        enum status st = CAPTURE(durable_put_new(path, "new text", 8));
        n_calls = fault_io_count();
        fault_io_set(NULL, FAULT_NONE, 0, 0);
        if (st == ST_OK)
            assert_int_equal(made_once(), 'n');
        assert_int_equal(CAPTURE(durable_put_new(path, "old text", 8)),
                         made_once() == 'n' ? ST_BUSY : ST_OK);
        assert_int_equal(empty_folder(), 0);
    }
}

static void concurrent_renames_succeed_once(void **state)
{
    char other[128];
    snprintf(other, sizeof other, "%s/other", folder);
    assert_int_equal(CAPTURE(durable_rename(path, other)), ST_NOT_FOUND);
    assert_int_equal(CAPTURE(durable_take_away(path)), ST_NOT_FOUND);
    assert_int_equal(capture_lines(), 0);
    assert_int_equal(put('a'), ST_OK);
    assert_int_equal(durable_rename(path, other), ST_OK);
    assert_int_equal(content(), 0);
    assert_int_equal(durable_rename(other, path), ST_OK);
    assert_int_equal(durable_take_away(path), ST_OK);
    assert_int_equal(durable_take_away(path), ST_NOT_FOUND);
}

/* Two writers have equal pids, like processes of two containers that share a folder. Each has its
 * own temporary file, and the file that is committed last exists, whole. A third writer, which ends
 * without a commit, removes no file of theirs. */
static void writers_with_equal_pids_do_not_collide(void **state)
{
    static char data[2][N_BYTES];
    for (int first = 0; first < 2; first++) {
        struct durable f[3];
        for (int i = 0; i < 3; i++)
            assert_int_equal(durable_begin(&f[i], path), ST_OK);
        for (int i = 0; i < 3; i++)
            assert_string_not_equal(f[i].temporary, f[(i + 1) % 3].temporary);
        for (int i = 0; i < 2; i++) {
            memset(data[i], 'a' + i, N_BYTES);
            assert_int_equal(durable_write(&f[i], data[i], N_BYTES / 2), ST_OK);
        }
        durable_end(&f[2]);
        for (int i = 0; i < 2; i++)
            assert_int_equal(durable_write(&f[i], data[i], N_BYTES - N_BYTES / 2), ST_OK);
        assert_int_equal(durable_commit(&f[first]), ST_OK);
        assert_int_equal(content(), 'a' + first);
        assert_int_equal(durable_commit(&f[!first]), ST_OK);
        assert_int_equal(content(), 'a' + !first);
        durable_end(&f[0]);
        durable_end(&f[1]);
        assert_int_equal(content(), 'a' + !first);
        assert_int_equal(empty_folder(), 0);
    }
}

static int is_link(const char *name)
{
    struct stat s;
    return lstat(name, &s) == 0 && S_ISLNK(s.st_mode);
}

/* Two links, an absolute and a relative one, lead to an existing file, then to a missing one. */
static void links_are_followed(void **state)
{
    char first[128], second[128];
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(second, sizeof second, "%s/second", folder);
    assert_int_equal(put('a'), ST_OK);
    assert_int_equal(symlink(second, first), 0);
    assert_int_equal(symlink("file", second), 0);
    for (int there = 1; there >= 0; there--) {
        assert_int_equal(durable_put(first, "new", 3), ST_OK);
        assert_true(is_link(first) && is_link(second) && !is_link(path));
        struct stat s;
        assert_int_equal(stat(path, &s), 0);
        assert_int_equal(s.st_size, 3);
        assert_int_equal(unlink(path), 0);
    }
    /* durable_put_new refuses a name that is a link, even a dangling one */
    assert_int_equal(durable_put_new(first, "new", 3), ST_BUSY);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(symlink(first, path), 0); /* a circle */
    assert_int_equal(CAPTURE(durable_put(first, "new", 3)), ST_IO);
    assert_non_null(strstr(capture_text, strerror(ELOOP)));
    assert_int_equal(CAPTURE(durable_put(folder, "new", 3)), ST_IO);
    assert_non_null(strstr(capture_text, strerror(EISDIR)));
    assert_int_equal(empty_folder(), 0);
}

/* The reader of the FIFO receives all bytes, and the FIFO remains. */
static void fifo_is_written_in_place(void **state)
{
    static char got[N_BYTES + 1];
    size_t n = 0;
    struct stat s;
    assert_int_equal(mkfifo(path, 0600), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(write_file('f', false) == ST_OK ? 0 : 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (ssize_t more = 1; more > 0 && n < sizeof got; n += (size_t)more) {
        more = read(fd, got + n, sizeof got - n);
        assert_true(more >= 0);
    }
    close(fd);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(n, N_BYTES);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got[i], 'f');
    assert_true(lstat(path, &s) == 0 && S_ISFIFO(s.st_mode));
    assert_int_equal(empty_folder(), 0);
}

/* Two device nodes that the test creates: null accepts all bytes, full accepts none. */
static void device_is_written_in_place(void **state)
{
    struct stat s;
    for (unsigned minor_number = 3; minor_number <= 7; minor_number += 4) {
        if (mknod(path, S_IFCHR | 0600, makedev(1, minor_number)) != 0)
            skip_because("a device cannot be made here: %s", strerror(errno));
        int fd = open(path, O_WRONLY | O_CLOEXEC), err = errno;
        if (fd < 0)
            skip_because("a device cannot be opened here: %s", strerror(err));
        close(fd);
        enum status st = CAPTURE(write_file('d', false));
        assert_true(lstat(path, &s) == 0 && S_ISCHR(s.st_mode));
        assert_int_equal(st, minor_number == 3 ? ST_OK : ST_FULL);
        if (st != ST_OK)
            assert_non_null(strstr(capture_text, strerror(ENOSPC)));
        assert_int_equal(empty_folder(), 0);
    }
}

int main(void)
{
    return RUN_EACH(setup, teardown, failed_call_leaves_old_file, crash_leaves_whole_file,
                    committed_file_survives_power_loss, full_disk_is_reported,
                    large_files_are_written_whole, small_file_is_rewritten,
                    missing_file_removes_without_error, new_file_is_made_once,
                    new_file_is_made_once_without_links, concurrent_renames_succeed_once,
                    writers_with_equal_pids_do_not_collide, links_are_followed,
                    fifo_is_written_in_place, device_is_written_in_place);
}
