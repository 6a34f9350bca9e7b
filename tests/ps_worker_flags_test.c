/* tests/ps_worker_flags_test.c - ps takes the worker's flags, and the worker those of ps:
 * ps/worker_flags.inc and worker/options/ps_flags.inc are what the other program's table says.
 * `ps_worker_flags_test --print ps/worker_flags.inc` writes that file, in the source folder. */
#include "base/flags.h"
#include "ps/options.h"
#include "worker/options/options_impl.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after its needs */
#include <cmocka.h>

static const struct inc {
    const char *path, *head;
    const struct flag *(*rows)(size_t *n);
} incs[] = {
    {"ps/worker_flags.inc",
     "/* ps/worker_flags.inc - the worker's flags as rows of ps's table, which takes them and uses "
     "none.\n * Written by build/tests/ps_worker_flags_test --print; "
     "worker/options/options_table.c is the "
     "source. */\n",
     options_table_rows},
    {"worker/options/ps_flags.inc",
     "/* worker/options/ps_flags.inc - ps's flags as rows of the worker's table, which takes them "
     "and uses "
     "none.\n * Written by build/tests/ps_worker_flags_test --print; ps/options.c is the source. */"
     "\n",
     ps_options_rows},
};

/* Flags that have a program do something else than train are left out, and what the other program's
 * own table has taken over. */
static int is_shared(const struct flag *row)
{
    return row->target && row->type != FLAG_MAYBE && strcmp(row->name, "leave") != 0;
}

static void print_rows(FILE *f, const struct inc *inc)
{
    static const char *const types[] = {"FLAG_STRING", "FLAG_INT", "FLAG_DOUBLE", "FLAG_BOOL",
                                        "FLAG_CHOICE"};
    size_t n;
    const struct flag *rows = inc->rows(&n);
    fputs(inc->head, f);
    for (size_t i = 0; i < n; i++) {
        if (!is_shared(&rows[i]))
            continue;
        fprintf(f, "{\"%s\", %s, NULL, %.17g, %.17g, NULL, ", rows[i].name, types[rows[i].type],
                rows[i].min, rows[i].max);
        const char *choices = rows[i].type == FLAG_CHOICE ? rows[i].choices : NULL;
        fprintf(f, choices ? "\"%s\", \"\", NULL},\n" : "NULL, \"\", NULL},\n", choices);
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

static void test_as_the_other_program(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof incs / sizeof *incs; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", WEIR_SOURCE_DIR, incs[i].path);
        FILE *is = fopen(path, "r"), *want = tmpfile();
        assert_non_null(is);
        assert_non_null(want);
        print_rows(want, &incs[i]);
        char *a = read_all(is), *b = read_all(want);
        if (strcmp(a, b) != 0)
            fail_msg("%s is not what the other program's flags are now; in the source folder run: "
                     "build/tests/ps_worker_flags_test --print %s",
                     incs[i].path, incs[i].path);
        free(a);
        free(b);
    }
}

/* By its path in the source folder. */
static int write_inc(const char *path)
{
    for (size_t i = 0; i < sizeof incs / sizeof *incs; i++) {
        FILE *f = strcmp(path, incs[i].path) ? NULL : fopen(path, "w");
        if (!f)
            continue;
        print_rows(f, &incs[i]);
        return fclose(f) != 0;
    }
    fprintf(stderr, "%s is none of the files that this writes, or not here\n", path);
    return 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_the_other_program)};
    if (argc == 3 && strcmp(argv[1], "--print") == 0)
        return write_inc(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
