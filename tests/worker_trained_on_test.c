/* tests/worker_trained_on_test.c - the description of the training data in an export: readers apply
 * the same limit to lists of names as writers, whatever a file contains. */
#include "files/safetensors.h"
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
        assert_int_equal(trained_on_read(path, NULL, &t), ST_OK);
        char *const lists[] = {t.class_names, t.columns, t.label_names, t.ignored_names};
        assert_int_equal(strlen(lists[i]), MOST);
        assert_int_equal(t.sample.dim[2], 4);
        trained_on_free(&t);
        save(path, keys[i], MOST + 1);
        assert_int_equal(CAPTURE(trained_on_read(path, NULL, &t)), ST_CORRUPT);
        assert_int_equal(capture_lines(), 1);
        snprintf(wanted, sizeof wanted, "its metadata \"%s\" is longer than 1 MB", keys[i]);
        assert_non_null(strstr(capture_text, wanted));
        trained_on_free(&t);
    }
    unlink(path);
}

/* The character between the keys of a cell, which --predict needs to read the same keys. */
static void separators_of_keys_are_kept(void **state)
{
    static const char separators[] = {0, ' ', '"', '|'};
    char path[] = "/tmp/weir_trained_on_XXXXXX", *text;
    const struct dataset train = {.sample = {3, {1, 1, 4}}, .classes = 2};
    const struct job_data data = {0};
    const struct dataset_range range = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof separators; i++) {
        const struct trained_on_source source = {.train = &train,
                                                 .data = &data,
                                                 .range = &range,
                                                 .model = "{}",
                                                 .key_separator = separators[i]};
        const char *pairs[TRAINED_ON_PAIRS + 1][2];
        struct trained_on_texts texts;
        struct trained_on t;
        int n;
        assert_int_equal(trained_on_metadata(&source, &texts, pairs, &n), ST_OK);
        pairs[n][0] = "global_step";
        pairs[n++][1] = "3";
        const struct safetensors_content content = {NULL, 0, pairs, n};
        assert_int_equal(safetensors_write(path, &content, NULL), ST_OK);
        trained_on_texts_free(&texts);
        assert_int_equal(trained_on_read(path, NULL, &t), ST_OK);
        assert_int_equal(t.key_separator, separators[i]);
        trained_on_free(&t);
        assert_int_equal(trained_on_text(&source, &text), ST_OK);
        assert_int_equal(strstr(text, "\"key_separator\":\"") != NULL, separators[i] != 0);
        free(text);
    }
    unlink(path);
}

/* Weir writes no text of several characters. */
static void long_separators_are_ignored(void **state)
{
    char path[] = "/tmp/weir_trained_on_XXXXXX";
    struct trained_on t;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    save(path, "key_separator", 2);
    assert_int_equal(trained_on_read(path, NULL, &t), ST_OK);
    assert_int_equal(t.key_separator, 0);
    trained_on_free(&t);
    save(path, "key_separator", 1);
    assert_int_equal(trained_on_read(path, NULL, &t), ST_OK);
    assert_int_equal(t.key_separator, 'a');
    trained_on_free(&t);
    unlink(path);
}

int main(void)
{
    return RUN_TESTS(lists_of_names_have_the_bound_of_an_export, separators_of_keys_are_kept,
                     long_separators_are_ignored);
}
