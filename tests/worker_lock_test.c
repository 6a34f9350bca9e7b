/* tests/worker_lock_test.c - the files by which GPUs are reserved, and the users that share
 * them. */
#include "base/log.h"
#include "member/device_lock.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "tests/skip.h"
#include "worker/device/device_info.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], lock_dir[80];

static int setup(void **unused)
{
    folder_rig_new(dir);
    assert_int_equal(chmod(dir, 0755), 0);
    snprintf(lock_dir, sizeof lock_dir, "%s/locks", dir);
    return mkdir(lock_dir, 0777) != 0 || chmod(lock_dir, 01777) != 0;
}

static int teardown(void **unused)
{
    return folder_rig_delete(dir);
}

static void lock_path(char *out, const char *key)
{
    sprintf(out, "%s/weir-gpu-%s.lock", lock_dir, key);
}

static void files_of_the_lock(void **unused)
{
    char path[160], why[DEVICE_WHY_SIZE];
    struct stat s;
    int fd, other;
    mode_t old = umask(077);
    assert_int_equal(device_lock_acquire(lock_dir, "GPU-1", &fd, why), ST_OK);
    assert_int_equal(umask(old), 077);
    lock_path(path, "GPU-1");
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0444);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(device_lock_acquire(lock_dir, "GPU-1", &other, why), ST_BUSY);
    assert_int_equal(device_lock_wait(lock_dir, "GPU-1", 50, &other), ST_BUSY);
    device_lock_release(fd);
    assert_int_equal(device_lock_acquire(lock_dir, "GPU-1", &fd, why), ST_OK);
    device_lock_release(fd);
    assert_int_equal(device_lock_acquire(lock_dir, "MIG-GPU-1/2/0", &fd, why), ST_OK);
    device_lock_release(fd);
    lock_path(path, "MIG-GPU-1_2_0");
    assert_int_equal(stat(path, &s), 0);

    char target[160];
    snprintf(target, sizeof target, "%s/target", dir);
    lock_path(path, "GPU-2");
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(device_lock_acquire(lock_dir, "GPU-2", &fd, why), ST_IO);
    assert_int_not_equal(access(target, F_OK), 0);
    close(open(target, O_CREAT | O_WRONLY, 0644));
    assert_int_equal(device_lock_acquire(lock_dir, "GPU-2", &fd, why), ST_IO);
    lock_path(path, "GPU-3");
    assert_int_equal(mkfifo(path, 0666), 0);
    assert_int_equal(device_lock_acquire(lock_dir, "GPU-3", &fd, why), ST_IO);
    assert_non_null(strstr(why, "not a regular file"));
    lock_path(path, "GPU-4");
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(device_lock_acquire(lock_dir, "GPU-4", &fd, why), ST_IO);
    assert_int_equal(device_lock_acquire("/nonexistent/dir", "GPU-5", &fd, why), ST_IO);
    assert_non_null(strstr(why, "No such file"));
}

/* Acquires this key's lock as user `uid`, and returns the result. */
static int take_as(uid_t uid, const char *key)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        char why[DEVICE_WHY_SIZE];
        int fd;
        umask(077);
        if (setresuid(uid, uid, uid) != 0)
            _exit(99);
        _exit((int)device_lock_acquire(lock_dir, key, &fd, why));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void other_users(void **unused)
{
    char path[160], why[DEVICE_WHY_SIZE];
    int fd;
    if (geteuid() != 0)
        skip_because("not root: two users cannot be played");
    assert_int_equal(take_as(65533, "GPU-1"), ST_OK);
    assert_int_equal(take_as(65534, "GPU-1"), ST_OK);
    assert_int_equal(device_lock_acquire(lock_dir, "GPU-1", &fd, why), ST_OK);
    assert_int_equal(take_as(65534, "GPU-1"), ST_BUSY);
    device_lock_release(fd);
    lock_path(path, "GPU-2");
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(take_as(65534, "GPU-2"), ST_IO);
    chmod(lock_dir, 0755);
    assert_int_equal(take_as(65534, "GPU-3"), ST_IO);
    assert_int_equal(take_as(65534, "GPU-1"), ST_OK);
}

static const char *raced_key; /* NULL: fchmod only calls the system's function */
static int raced;

/* Replaces the C library's function: before a new file has its mode, another user acquires the
 * lock. */
int fchmod(int fd, mode_t mode)
{
    const char *key = raced_key;
    raced_key = NULL;
    if (key)
        raced = take_as(65534, key);
    return (int)syscall(SYS_fchmod, fd, mode);
}

static void no_user_is_refused_while_another_creates_the_file(void **unused)
{
    char path[160], why[DEVICE_WHY_SIZE];
    struct stat s;
    int fd;
    if (geteuid() != 0)
        skip_because("not root: two users cannot be played");
    mode_t old = umask(077);
    raced_key = "GPU-1";
    raced = -1;
    assert_int_equal(device_lock_acquire(lock_dir, "GPU-1", &fd, why), ST_OK);
    umask(old);
    assert_int_equal(raced, ST_OK);
    device_lock_release(fd);
    lock_path(path, "GPU-1");
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0444);
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(lock_dir), 0); /* no other file remains */
}

int main(void)
{
    log_init("worker", -1, LOG_LEVEL_INFO);
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(files_of_the_lock),
        TEST(other_users),
        TEST(no_user_is_refused_while_another_creates_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
