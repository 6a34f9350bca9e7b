/* tests/ps_folder_made_test.c - creating a folder of checkpoints, with a fault or a power failure
 * at each of its system calls (tests/fault_io.h), and concurrent claims of one folder. */
#include "checkpoint/folder.h"
#include "files/durable.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/fault_io.h"
#include "tests/folder_rig.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_CALLS = 4 }; /* mkdir, open, fsync, close */

static char parent[64], path[80], with_slash[88], file[96];

static int setup(void **state)
{
    folder_rig_new(parent);
    snprintf(path, sizeof path, "%s/ck", parent);
    snprintf(with_slash, sizeof with_slash, "%s//", path);
    snprintf(file, sizeof file, "%s/text", path);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    fault_io_set(NULL, FAULT_NONE, 0, 0);
    snprintf(command, sizeof command, "rm -r '%s'", parent);
    return system(command); /* NOLINT */
}

static int is_folder(const char *name)
{
    struct stat s;
    return stat(name, &s) == 0 && S_ISDIR(s.st_mode);
}

static void created_folder_survives_a_power_failure(void **state)
{
    for (int slash = 0; slash <= 1; slash++) {
        pid_t pid = fork();
        if (pid == 0) {
            fault_io_set(parent, FAULT_POWER, 0, 0);
            if (checkpoint_folder_make(slash ? with_slash : path) == ST_OK &&
                durable_put(file, "text", 4) == ST_OK)
                fault_io_stop();
            _exit(1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == FAULT_EXIT);
        assert_true(is_folder(path));
        assert_int_equal(access(file, F_OK), 0);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(rmdir(path), 0);
    }
}

/* The error names the folder that could not be created or synced; a second start succeeds. */
static void failing_call_is_named_and_the_next_start_succeeds(void **state)
{
    for (int at = 1; at <= N_CALLS; at++) {
        fault_io_set(parent, FAULT_ERROR, at, EIO);
        enum status st = CAPTURE(checkpoint_folder_make(path));
        fault_io_set(NULL, FAULT_NONE, 0, 0);
        if (st != ST_OK) {
            assert_int_equal(st, ST_IO);
            assert_int_equal(capture_lines(), 1);
            assert_non_null(strstr(capture_text, parent));
        }
        assert_int_equal(st == ST_OK, at == N_CALLS); /* if close() fails, nothing is lost */
        assert_int_equal(checkpoint_folder_make(path), ST_OK);
        assert_int_equal(rmdir(path), 0);
    }
    fault_io_set(parent, FAULT_NONE, 0, 0);
    assert_int_equal(checkpoint_folder_make(path), ST_OK);
    assert_int_equal(fault_io_count(), N_CALLS);
    assert_int_equal(checkpoint_folder_make(path), ST_OK);
}

static void file_of_that_name_is_refused(void **state)
{
    assert_int_equal(durable_put(path, "text", 4), ST_OK);
    assert_int_equal(CAPTURE(checkpoint_folder_make(path)), ST_INVALID);
    assert_non_null(strstr(capture_text, "is not a folder"));
    snprintf(file, sizeof file, "%s/none/ck", parent);
    assert_int_not_equal(CAPTURE(checkpoint_folder_make(file)), ST_OK);
    assert_non_null(strstr(
        capture_text,
        "none/ck cannot be created: No such file or directory; create its parent folder first"));
}

/* No epoch is used twice, and one of the claimants owns the folder. */
static void concurrent_claims_get_distinct_epochs(void **state)
{
    enum { N = 8 };
    struct checkpoint_lease got[N], owner;
    int go[2], back[2], n_got = 0, n_owners = 0;
    assert_true(pipe(go) == 0 && pipe(back) == 0);
    for (int i = 0; i < N; i++) {
        if (fork() != 0)
            continue;
        struct checkpoint_lease l = {0};
        char none;
        close(go[1]);
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
        enum status st =
            read(go[0], &none, 1) == 0
                ? checkpoint_folder_claim(parent, 100 + (uint64_t)i, "many:1", 0, NULL, &l)
                : ST_INTERNAL;
        int is_written = write(back[1], &l, sizeof l) == sizeof l;
        _exit(!is_written || (st != ST_OK && st != ST_BUSY));
    }
    close(go[0]);
    close(go[1]); /* all at once */
    for (int i = 0; i < N; i++) {
        assert_int_equal(read(back[0], &got[n_got], sizeof *got), sizeof *got);
        n_got += got[n_got].epoch > 0;
    }
    for (int i = 0, status; i < N; i++)
        assert_true(wait(&status) > 0 && status == 0);
    close(back[0]);
    close(back[1]);
    assert_int_equal(checkpoint_folder_lease(parent, &owner), ST_OK);
    for (int i = 0; i < n_got; i++) {
        n_owners += CAPTURE(checkpoint_folder_still_owner(parent, &got[i])) == ST_OK;
        for (int k = 0; k < i; k++)
            assert_true(got[i].epoch != got[k].epoch);
    }
    assert_int_equal(n_owners, 1);
    assert_true(owner.epoch >= (uint64_t)n_got);
}

int main(void)
{
    return RUN_EACH(setup, teardown, created_folder_survives_a_power_failure,
                    failing_call_is_named_and_the_next_start_succeeds, file_of_that_name_is_refused,
                    concurrent_claims_get_distinct_epochs);
}
