/* tests/libweir_gpu_test.c - weir_gpu_reserve and weir_gpu_release. tests/python/test_reserve.py
 * has the cases with several processes. */
#include "libweir/weir.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], why[1024];

static int setup(void **unused)
{
    folder_rig_new(dir);
    why[0] = '\0';
    return 0;
}

static int teardown(void **unused)
{
    return folder_rig_delete(dir);
}

static int reserve(double fraction, struct weir_gpu **out)
{
    return weir_gpu_reserve("GPU-1", fraction, dir, out, why, sizeof why);
}

static void invalid_arguments_are_refused(void **unused)
{
    struct weir_gpu *gpu = NULL;
    static const char *const bad[] = {NULL, "", "GPU-", "gpu-1", "GPU-../x", "GPU-a b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        why[0] = '\0';
        assert_int_equal(weir_gpu_reserve(bad[i], 0, dir, &gpu, why, sizeof why), WEIR_E_INVALID);
        assert_non_null(strstr(why, "uuid is not"));
    }
    static const double wrong[] = {-0.1, 1.1, NAN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(reserve(wrong[i], &gpu), WEIR_E_INVALID);
        assert_non_null(strstr(why, "memory_fraction is not"));
    }
    assert_int_equal(weir_gpu_reserve("GPU-1", 0, dir, NULL, why, sizeof why), WEIR_E_INVALID);
    assert_int_equal(weir_gpu_reserve(NULL, 0, dir, &gpu, NULL, 0), WEIR_E_INVALID);
    assert_int_equal(weir_gpu_reserve("GPU-1", 0, "/nowhere", &gpu, why, sizeof why), WEIR_E_IO);
    assert_null(gpu);
    weir_gpu_release(NULL);
}

static void held_gpu_is_reported_with_its_holder(void **unused)
{
    struct weir_gpu *a, *b;
    assert_int_equal(reserve(0, &a), WEIR_OK);
    assert_int_equal(reserve(0, &b), WEIR_AGAIN);
    assert_non_null(strstr(why, "has reserved it ("));
    assert_int_equal(reserve(0.4, &b), WEIR_AGAIN);
    weir_gpu_release(a);
    assert_int_equal(reserve(0, &a), WEIR_OK);
    weir_gpu_release(a);
}

static void fractions_add_up_to_one(void **unused)
{
    struct weir_gpu *a, *b, *c;
    assert_int_equal(reserve(0.4, &a), WEIR_OK);
    assert_int_equal(reserve(0.6, &b), WEIR_OK);
    assert_int_equal(reserve(0.1, &c), WEIR_AGAIN);
    assert_non_null(strstr(why, "so 0.1 of it does not fit"));
    weir_gpu_release(a);
    assert_int_equal(reserve(0.1, &c), WEIR_OK);
    weir_gpu_release(b);
    weir_gpu_release(c);
}

static void forked_child_does_not_end_the_reservation(void **unused)
{
    struct weir_gpu *a, *b;
    int status = -1;
    assert_int_equal(reserve(0, &a), WEIR_OK);
    pid_t child = fork();
    if (child == 0) {
        weir_gpu_release(a);
        _exit(reserve(0, &b) == WEIR_AGAIN ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(reserve(0, &b), WEIR_AGAIN);
    assert_non_null(strstr(why, "has reserved it ("));
    weir_gpu_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(invalid_arguments_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(held_gpu_is_reported_with_its_holder, setup, teardown),
        cmocka_unit_test_setup_teardown(fractions_add_up_to_one, setup, teardown),
        cmocka_unit_test_setup_teardown(forked_child_does_not_end_the_reservation, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
