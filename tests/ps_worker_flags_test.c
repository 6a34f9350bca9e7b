/* tests/ps_worker_flags_test.c - ps takes the worker's flags: ps/worker_flags.inc is what the
 * worker's table says. `ps_worker_flags_test --print` writes that file. */
#include "base/flags.h"
#include "worker/options_impl.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

#define INC WEIR_SOURCE_DIR "/ps/worker_flags.inc"

static const char head[] = "/* ps/worker_flags.inc - the worker's flags as rows of ps's table, "
                           "which takes them and uses none."
                           "\n * Written by build/tests/ps_worker_flags_test --print; "
                           "worker/options_table.c is the source. "
                           "*/\n";

/* FLAG_MAYBE is left out: such a flag has the worker do something else than train. */
static void print_rows(FILE *f)
{
    static const char *const types[] = {"FLAG_STRING", "FLAG_INT", "FLAG_DOUBLE", "FLAG_BOOL",
                                        "FLAG_CHOICE"};
    size_t n;
    const struct flag *rows = options_table_rows(&n);
    fputs(head, f);
    for (size_t i = 0; i < n; i++) {
        if (rows[i].type == FLAG_MAYBE)
            continue;
        fprintf(f, "{\"%s\", %s, NULL, %.17g, %.17g, NULL, ", rows[i].name, types[rows[i].type],
                rows[i].min, rows[i].max);
        fprintf(f, rows[i].choices ? "\"%s\", \"\", NULL},\n" : "NULL, \"\", NULL},\n",
                rows[i].choices);
    }
}

static char *read_all(FILE *f)
{
    enum { MOST = 1 << 16 };
    char *text = calloc(1, MOST + 1);
    assert_non_null(text);
    rewind(f);
    assert_true(fread(text, 1, MOST, f) < MOST);
    fclose(f);
    return text;
}

static void test_as_the_worker(void **state)
{
    FILE *is = fopen(INC, "r"), *want = tmpfile();
    assert_non_null(is);
    assert_non_null(want);
    print_rows(want);
    char *a = read_all(is), *b = read_all(want);
    if (strcmp(a, b) != 0)
        fail_msg("ps/worker_flags.inc is not what the worker's flags are now; in the source folder "
                 "run: build/tests/ps_worker_flags_test --print > flags.new && "
                 "mv flags.new ps/worker_flags.inc");
    free(a);
    free(b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_the_worker)};
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        print_rows(stdout);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
