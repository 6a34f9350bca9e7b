/* tests/kernel_backend_test.c - finds a backend by name, and refuses a library that was built with
 * another form of the interface. The fake backends are in tests/fake_backend. */
#include "kernels/backend_abi.h"
#include "tests/check.h"
#include "tests/skip.h"
#include <stdio.h>
#include <string.h>

static const struct backend *refused(const char *name, char *why)
{
    const struct backend *none = NULL;
    assert_int_equal(backend_find(name, WEIR_TEST_DIR, &none, why), ST_NOT_FOUND);
    assert_null(none);
    return none;
}

static void assert_says(const char *why, const char *what)
{
    if (strstr(why, what) == NULL)
        fail_msg("'%s' is not in '%s'", what, why);
}

/* The error names the file, both versions, and the fix. */
static void other_version_refused(void **state)
{
    static const uint32_t own[BACKEND_ABI_PARTS] = BACKEND_ABI;
    char why[BACKEND_WHY_SIZE], text[64];
    refused("stale", why);
    assert_says(why, WEIR_TEST_DIR "/libweir_stale.so is from another build");
    assert_says(why, "its interface version is 0.0.0.0.0.0,");
    snprintf(text, sizeof text, "but this program needs %u.%u.", own[0], own[1]);
    assert_says(why, text);
    assert_says(why, "build or install both from the same source");
    assert_says(why, "--backend_dir");
    assert_null(strchr(why, '\n'));
}

static void test_no_version_is_refused(void **state)
{
    char why[BACKEND_WHY_SIZE];
    refused("unversioned", why);
    assert_says(why, "libweir_unversioned.so is from another build");
    assert_says(why, "it has no interface version,");
}

static void test_no_backend_is_refused(void **state)
{
    char why[BACKEND_WHY_SIZE];
    refused("empty", why);
    assert_says(why, "libweir_empty.so exports no weir_backend; it is not a Weir backend");
    refused("absent", why);
    assert_says(why, "cannot be loaded");
}

static void same_version_accepted(void **state)
{
    char why[BACKEND_WHY_SIZE];
    const struct backend *cpu = NULL;
    if (backend_find("cpu", WEIR_TEST_BACKEND_DIR, &cpu, why) != ST_OK) {
        assert_says(why, "cannot be loaded");
        skip_because("the CPU backend is not in this build");
    }
    assert_string_equal(cpu->name, "cpu");
}

int main(void)
{
    return RUN_TESTS(other_version_refused, test_no_version_is_refused, test_no_backend_is_refused,
                     same_version_accepted);
}
