/* tests/worker_trained_on_test.c - the description of the training data in an export: readers apply
 * the same limit to lists of names as writers, whatever a file contains. */
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/results/trained_on.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 1 << 20 }; /* bytes of a list of names */

/* Writes an export whose list of this key has n bytes. */
static void save(const char *path, const char *key, size_t n)
{
    char *names = malloc(n + 1), *header = malloc(n + 200);
    assert_true(names && header);
    memset(names, 'a', n);
    names[n] = 0;
    uint64_t bytes = (uint64_t)sprintf(
        header,
        "{\"__metadata__\": {\"global_step\": \"3\", \"sample\": \"1x1x4\", \"labels\": \"classes\", \"%s\": \"%s\"}}",
        key, names);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bytes >> (8 * i));
    assert_int_equal(fwrite(length, 1, sizeof length, f), sizeof length);
    assert_int_equal(fwrite(header, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    free(names);
    free(header);
}

static void lists_of_names_have_the_bound_of_an_export(void **state)
{
    static const char *const keys[] = {"classes", "columns", "label_columns", "ignored_columns"};
    char path[] = "/tmp/weir_trained_on_XXXXXX", wanted[100];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct trained_on t;
        save(path, keys[i], MOST);
        assert_int_equal(trained_on_read(path, &t), ST_OK);
        char *const lists[] = {t.class_names, t.columns, t.label_names, t.ignored_names};
        assert_int_equal(strlen(lists[i]), MOST);
        assert_int_equal(t.sample.dim[2], 4);
        trained_on_free(&t);
        save(path, keys[i], MOST + 1);
        assert_int_equal(CAPTURE(trained_on_read(path, &t)), ST_CORRUPT);
        assert_int_equal(capture_lines(), 1);
        snprintf(wanted, sizeof wanted, "its metadata \"%s\" is longer than 1 MB", keys[i]);
        assert_non_null(strstr(capture_text, wanted));
        trained_on_free(&t);
    }
    unlink(path);
}

int main(void)
{
    return RUN_TESTS(lists_of_names_have_the_bound_of_an_export);
}
