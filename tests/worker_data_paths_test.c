/* tests/worker_data_paths_test.c - flags whose path is no data: a missing path, a file instead of a
 * folder, or one picture instead of a folder of pictures. The refusal names the flag and the path
 * that it needs. */
#include "base/log.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "tests/folder_rig.h"
#include "worker/data/dataset.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/weir_paths_XXXXXX";

static void check_bad(const struct dataset_request *r, enum status want, const char *piece,
                      const char *other)
{
    struct dataset *d = NULL;
    enum status st = CAPTURE(dataset_open(r, &d));
    if (st != want || capture_lines() != 1 || !strstr(capture_text, piece) ||
        !strstr(capture_text, other))
        fail_msg("status %s, wanted %s with \"%s\" and \"%s\"; said: %s", status_name(st),
                 status_name(want), piece, other, capture_text);
    assert_null(d);
}

static void path_that_is_not_there_is_named_with_its_flag(void **state)
{
    char cwd[PATH_MAX], wanted[PATH_MAX + 64], path[64];
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(wanted, sizeof wanted, "begins in the working directory, %s", cwd);
    check_bad(&(struct dataset_request){.part = "train", .data = "weir/pictures"}, ST_NOT_FOUND,
              "--train_data=weir/pictures: there is no such file or folder", wanted);
    check_bad(&(struct dataset_request){.part = "test", .data = "/nowhere/x.csv"}, ST_NOT_FOUND,
              "--test_data=/nowhere/x.csv: there is no such file or folder", "");
    snprintf(path, sizeof path, "%s/x.idx", dir);
    folder_rig_save(path, "\0\0\x08\2\0\0\0\1\0\0\0\1\7", 13); /* a sample of one byte */
    check_bad(&(struct dataset_request){.part = "train", .data = path, .labels = "/nowhere/y.npy"},
              ST_NOT_FOUND, "--train_labels=/nowhere/y.npy: there is no such file", "");
    unlink(path);
    check_bad(&(struct dataset_request){.part = "train", .dir = "/nowhere/data"}, ST_NOT_FOUND,
              "--data_dir=/nowhere/data: there is no such folder", "");
    check_bad(&(struct dataset_request){.part = "validation",
                                        .dir = "/nowhere/data",
                                        .dir_flag = "validation_dir"},
              ST_NOT_FOUND, "--validation_dir=/nowhere/data: there is no such folder", "");
}

static void file_for_a_folder_is_named(void **state)
{
    char path[64];
    snprintf(path, sizeof path, "%s/x.csv", dir);
    folder_rig_save(path, "1,2\n", 4);
    check_bad(&(struct dataset_request){.part = "train", .dir = path}, ST_INVALID,
              "x.csv: is a file, but the flag needs a folder", "name a file with --train_data");
    check_bad(
        &(struct dataset_request){.part = "validation", .dir = path, .dir_flag = "validation_dir"},
        ST_INVALID, "--validation_dir=/tmp/weir_paths_", "put the file into a folder");
    unlink(path);
}

static void one_picture_is_named_as_such(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *kind;
    } pictures[] = {{"\x89PNG\r\n\x1a\n", 8, "PNG"}, {"\xff\xd8\xff\xe0", 4, "JPEG"}};
    char path[64], wanted[64];
    snprintf(path, sizeof path, "%s/one", dir);
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
        folder_rig_save(path, pictures[i].bytes, pictures[i].n);
        snprintf(wanted, sizeof wanted, "/one: is one %s picture", pictures[i].kind);
        check_bad(&(struct dataset_request){.part = "train", .data = path}, ST_UNSUPPORTED, wanted,
                  "name the folder that has a folder of pictures for each class");
        check_bad(&(struct dataset_request){.part = "test", .data = path, .to_predict = 1},
                  ST_UNSUPPORTED, wanted, "name the folder that holds the pictures");
    }
    unlink(path);
}

static void pictures_without_folders_of_classes_are_named(void **state)
{
    char path[64];
    snprintf(path, sizeof path, "%s/0.png", dir);
    folder_rig_save(path, "\x89PNG\r\n\x1a\n", 8);
    check_bad(&(struct dataset_request){.part = "train", .dir = dir}, ST_NOT_FOUND,
              "it holds pictures; put the pictures of each class into a folder",
              "name the parent of these folders with --train_data");
    check_bad(&(struct dataset_request){.part = "test", .dir = dir, .to_predict = 1}, ST_NOT_FOUND,
              "it holds pictures; name it with --test_data", "");
    unlink(path);
}

static int make_dir(void **state)
{
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
    return rmdir(dir);
}

int main(void)
{
    return RUN_GROUP(make_dir, remove_dir, path_that_is_not_there_is_named_with_its_flag,
                     file_for_a_folder_is_named, one_picture_is_named_as_such,
                     pictures_without_folders_of_classes_are_named);
}
