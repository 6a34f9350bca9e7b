/* tests/worker_claim_test.c - reservations of whole cards and of fractions, added up. In these
 * tests one process may hold several reservations, because locks belong to open files. */
#include "base/log.h"
#include "member/device_claim.h"
#include "member/device_lock.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[64], why[DEVICE_CLAIM_WHY_SIZE];
static struct device_holders others;

static int setup(void **unused)
{
    folder_rig_new(dir);
    return 0;
}

static int teardown(void **unused)
{
    return folder_rig_delete(dir);
}

static enum status take(double fraction, int is_cap, int is_auto, struct device_claim *out)
{
    const struct device_claim_request want = {device_claim_parts(fraction), is_cap, is_auto};
    return device_claim_acquire(dir, "GPU-1", &want, out, &others, why);
}

static void says(const char *text)
{
    if (!strstr(why, text))
        fail_msg("'%s' is not in: %s", text, why);
}

/* Counts the files of claims in the folder. */
static int n_files(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += strstr(e->d_name, ".use-") != NULL;
    closedir(d);
    return n;
}

static void parts_of_fractions(void **unused)
{
    assert_int_equal(device_claim_parts(0), 0);
    assert_int_equal(device_claim_parts(0.4), 400000);
    assert_int_equal(device_claim_parts(1), DEVICE_CLAIM_WHOLE);
    assert_int_equal(device_claim_parts(1e-12), 1);
}

static void fractions_add_up(void **unused)
{
    struct device_claim a, b, c;
    char text[200];
    assert_int_equal(take(0.4, 0, 1, &a), ST_OK);
    assert_int_equal(others.n, 0);
    assert_int_equal(take(0.4, 0, 1, &b), ST_OK);
    assert_int_equal(others.n, 1);
    assert_int_equal(others.holder[0].parts, 400000);
    assert_int_equal(take(0.4, 0, 1, &c), ST_REFUSED);
    assert_int_equal(others.n, 2);
    snprintf(text, sizeof text, "process %d has reserved 0.4 of its memory (worker_claim",
             getpid());
    if (others.holder[0].pid == 0) /* this system has no /proc/locks */
        snprintf(text, sizeof text, "has reserved 0.4 of its memory (");
    says(text);
    assert_non_null(strstr(strstr(why, text) + 1, text));
    says(", so 0.4 of it does not fit");
    assert_int_equal(n_files(), 2);
    assert_int_equal(take(0.2, 0, 0, &c), ST_OK);
    device_claim_release(&a);
    assert_int_equal(take(0.4, 0, 0, &a), ST_OK);
    device_claim_release(&a);
    device_claim_release(&b);
    device_claim_release(&c);
    assert_int_equal(n_files(), 0);
}

/* A memory limit for a named card does not reserve the memory: other processes may still reserve
 * it. */
static void named_caps_leave_memory_free(void **unused)
{
    struct device_claim a, b, c;
    assert_int_equal(take(0.7, 1, 0, &a), ST_OK);
    assert_true(a.lock >= 0);
    assert_int_equal(take(0.9, 0, 0, &b), ST_OK);
    assert_true(others.holder[0].is_cap);
    assert_int_equal(take(0.2, 0, 0, &c), ST_REFUSED);
    assert_int_equal(take(0.7, 1, 1, &c), ST_REFUSED);
    assert_int_equal(take(0.7, 1, 0, &c), ST_OK);
    device_claim_release(&a);
    device_claim_release(&b);
    device_claim_release(&c);
}

static void whole_cards(void **unused)
{
    struct device_claim a, b;
    const struct device_claim_request whole = {.parts = 0};
    assert_int_equal(take(0, 0, 1, &a), ST_OK);
    assert_int_equal(take(0, 0, 1, &b), ST_BUSY);
    says("has reserved it (");
    says(", since 2");
    assert_int_equal(take(0.1, 0, 1, &b), ST_BUSY);
    says("has reserved it (");
    /* The mark of a card that is used without a reservation is listed. */
    device_claim_mark(dir, "GPU-1", &whole, &b);
    b.lock = -1;
    struct device_holders seen;
    assert_int_equal(device_claim_list(dir, "GPU-1", &seen), ST_OK);
    assert_int_equal(seen.n, 2);
    assert_true(seen.holder[0].since > 0 && llabs(time(NULL) - seen.holder[0].since) < 86400);
    assert_int_equal(device_claim_list(dir, "GPU-11", &seen), ST_OK);
    assert_int_equal(seen.n, 0);
    device_claim_release(&b);
    device_claim_release(&a);
    assert_int_equal(take(0.1, 0, 1, &a), ST_OK);
    assert_int_equal(take(0, 0, 1, &b), ST_BUSY);
    says("has reserved 0.1 of its memory (");
    device_claim_release(&a);
    assert_int_equal(n_files(), 0);
}

static void killed_process_holds_no_claim(void **unused)
{
    struct device_claim a;
    int ready[2], status;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (take(0.9, 0, 1, &a) != ST_OK || write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(take(0.9, 0, 1, &a), ST_REFUSED);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(n_files(), 1);
    assert_int_equal(take(0.9, 0, 1, &a), ST_OK);
    assert_int_equal(n_files(), 1); /* the file of the dead process is removed */
    device_claim_release(&a);
    close(ready[0]);
    close(ready[1]);
}

/* Ignores files that no claim has written, and never follows them. */
static void foreign_files_ignored(void **unused)
{
    static const char *const names[] = {
        "GPU-1.use-.lock",
        "GPU-1.use-1-2-3.lock",
        "GPU-1.use-1-99999999-now-1.lock",
        "GPU-1.use-1-1000001-now-1.lock",
        "GPU-1.use--1-100-now-1.lock",
        "GPU-1.use-1-100-was-1.lock",
        "GPU-1.use-1-100-now-1.lock.old",
        "GPU-1.use-1-100-now-.lock",
        "GPU-1.use-99999999999999999999-100-now-1.lock",
    };
    struct device_claim a;
    char path[200];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/weir-gpu-%s", dir, names[i]);
        fclose(fopen(path, "w"));
    }
    snprintf(path, sizeof path, "%s/weir-gpu-GPU-1.use-1-900000-now-a.lock", dir);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof path, "%s/weir-gpu-GPU-1.use-1-900000-now-b.lock", dir);
    assert_int_equal(mkfifo(path, 0666), 0);
    assert_int_equal(take(0.9, 0, 1, &a), ST_OK);
    assert_int_equal(others.n, 0);
    device_claim_release(&a);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
    snprintf(dir + strlen(dir), sizeof dir - strlen(dir), "/nowhere");
    assert_int_equal(take(0.9, 0, 1, &a), ST_IO);
    says("it cannot be reserved");
    dir[strlen(dir) - strlen("/nowhere")] = '\0';
}

int main(void)
{
    log_init("worker", -1, LOG_LEVEL_INFO);
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(parts_of_fractions), TEST(fractions_add_up),      TEST(named_caps_leave_memory_free),
        TEST(whole_cards),        TEST(foreign_files_ignored), TEST(killed_process_holds_no_claim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
