/* tests/base_cores_test.c - tests the number of usable cores: the limits of control groups
 * (versions 1 and 2) at every level of their path, in an artificial tree; and the affinity of this
 * process. */
#include "base/cores.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tree {
    char dir[32], self[64];
};

static int setup(void **state)
{
    struct tree *t = calloc(1, sizeof *t);
    assert_non_null(t);
    folder_rig_new(t->dir);
    snprintf(t->self, sizeof t->self, "%s/self", t->dir);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct tree *t = *state;
    assert_int_equal(folder_rig_delete(t->dir), 0);
    free(t);
    return 0;
}

static void put(const struct tree *t, const char *name, const char *text)
{
    char command[600];
    snprintf(command, sizeof command,
             "mkdir -p $(dirname '%s/%s') && printf '%%b\\n' '%s' >'%s/%s'", t->dir, name, text,
             t->dir, name);
    assert_int_equal(system(command), 0);
}

static void expect(const struct tree *t, double quota)
{
    double got = cores_quota(t->self, t->dir);
    if (got < quota - 1e-9 || got > quota + 1e-9)
        fail_msg("%g cores, expected %g", got, quota);
}

static void test_v2(void **state)
{
    struct tree *t = *state;
    expect(t, 0); /* no file */
    put(t, "self", "0::/a/b");
    expect(t, 0);
    put(t, "a/b/cpu.max", "max 100000");
    expect(t, 0);
    put(t, "a/b/cpu.max", "350000 100000");
    expect(t, 3.5);
    put(t, "a/cpu.max", "200000 100000"); /* a tighter limit above it */
    expect(t, 2);
    put(t, "a/cpu.max", "800000 100000");
    expect(t, 3.5);
    put(t, "cpu.max", "25000 50000"); /* the root of a container */
    expect(t, 0.5);
}

/* `self` names a path that the mounted tree lacks (a path of the host, or one above the tree), so
 * only the limit of the root applies. */
static void missing_paths_have_no_limit(void **state)
{
    struct tree *t = *state;
    put(t, "cpu.max", "400000 100000");
    put(t, "self", "0::/system.slice/docker-17.scope");
    expect(t, 4);
    put(t, "self", "0::/../other");
    expect(t, 4);
    put(t, "self", "0::/");
    expect(t, 4);
}

static void test_v1(void **state)
{
    struct tree *t = *state;
    put(t, "self", "12:memory:/m\\n4:cpu,cpuacct:/docker/17\\n3:cpuset:/x\\n0::/y");
    put(t, "cpu,cpuacct/docker/17/cpu.cfs_quota_us", "-1");
    put(t, "cpu,cpuacct/docker/17/cpu.cfs_period_us", "100000");
    expect(t, 0);
    put(t, "cpu,cpuacct/docker/17/cpu.cfs_quota_us", "150000");
    expect(t, 1.5);
    put(t, "cpu,cpuacct/docker/cpu.cfs_quota_us", "50000");
    put(t, "cpu,cpuacct/docker/cpu.cfs_period_us", "100000");
    expect(t, 0.5);
    put(t, "self", "4:cpuset,cpuacct:/docker/17"); /* cpuset does not limit CPU time */
    expect(t, 0);
    put(t, "unified/y/cpu.max", "300000 100000"); /* both versions on one machine */
    put(t, "self", "4:cpu:/docker/17\\n0::/y");
    put(t, "cpu,cpuacct/docker/cpu.cfs_quota_us", "-1");
    put(t, "cpu,cpuacct/docker/17/cpu.cfs_quota_us", "-1");
    expect(t, 3);
}

static void invalid_limits_ignored(void **state)
{
    struct tree *t = *state;
    const char *const texts[] = {"", "x", "1", "100000 0", "-5 100000", "nan nan", "0 100000"};
    put(t, "self", "nothing\\n:\\n0::/a\\n::\\n0::no-slash");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put(t, "a/cpu.max", texts[i]);
        expect(t, 0);
    }
}

static void test_affinity(void **state)
{
    cpu_set_t before, one;
    struct cores c = cores_usable();
    assert_in_range(c.n, 1, c.n_affinity);
    assert_in_range(c.n_affinity, 1, c.n_machine);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    c = cores_usable();
    assert_int_equal(c.n_affinity, 1);
    assert_int_equal(c.n, 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* The smaller of affinity and quota applies, and a fraction of a core counts as a whole one. */
static void fractions_round_up_to_threads(void **state)
{
    const struct {
        int n_affinity;
        double quota;
        int want;
    } rows[] = {{8, 0, 8},   {8, 8, 8},   {8, 20, 8},  {8, 3, 3},     {8, 1.5, 2},
                {8, 0.3, 1}, {2, 1.5, 2}, {2, 7.5, 2}, {8, 2.001, 3}, {1, 0.3, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cores c = cores_count(8, rows[i].n_affinity, rows[i].quota);
        if (c.n != rows[i].want)
            fail_msg("%d cores and a limit of %g are %d, expected %d", rows[i].n_affinity,
                     rows[i].quota, c.n, rows[i].want);
        assert_int_equal(c.n_machine, 8);
        assert_int_equal(c.n_affinity, rows[i].n_affinity);
    }
}

/* Workers divide the cores of the machine. They divide the limit of a container only if all of them
 * run in it. Affinity limits this process alone and is not divided. */
static void workers_share_cores_of_machine(void **state)
{
    const struct cores whole = cores_count(8, 8, 0), bound = cores_count(8, 4, 0);
    const struct cores limited = cores_count(64, 64, 7.5), both = cores_count(64, 16, 8);
    const struct cores loose = cores_count(8, 4, 6);
    const int want[] = {8, 8, 4, 2, 2, 1, 1, 1, 1, 1};
    for (int n = 0; n < 10; n++)
        for (int one_group = 0; one_group < 2; one_group++) {
            assert_int_equal(cores_share(&whole, n, one_group), want[n]);
            assert_int_equal(cores_share(&bound, n, one_group), 4);
            assert_int_equal(cores_share(&loose, n, one_group), 4);
            assert_int_equal(cores_share(&limited, n, one_group), one_group ? want[n] : 8);
            assert_int_equal(cores_share(&both, n, one_group), one_group ? want[n] : 8);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_v2, setup, teardown),
        cmocka_unit_test_setup_teardown(missing_paths_have_no_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v1, setup, teardown),
        cmocka_unit_test_setup_teardown(invalid_limits_ignored, setup, teardown),
        cmocka_unit_test(test_affinity),
        cmocka_unit_test(fractions_round_up_to_threads),
        cmocka_unit_test(workers_share_cores_of_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
