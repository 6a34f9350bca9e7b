/* worker/data/dataset_find.c - finds the files of a set by name. The first pair of names whose file
 * of samples exists is used; its file of labels must then exist, too. */
#include "worker/data/dataset_find.h"
#include "base/log.h"
#include "base/program_dir.h"
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* First part of the files' names. */
static const char *const prefix[] = {"train", "test", "t10k", "val", "validation"};
enum { TRAIN = 0, TEST = 1, VALIDATION = 3, N_TEST = 2, N_VALIDATION = 2 };

/* Second part of the names; labels NULL: the samples' file also contains the labels. */
static const struct {
    const char *data, *labels;
    bool may_be_gzipped;
} known[] = {
    {"-images-idx3-ubyte", "-labels-idx1-ubyte", 1},
    {"-images-idx4-ubyte", "-labels-idx1-ubyte", 1},
    {"-images-idx2-ubyte", "-labels-idx1-ubyte", 1},
    {"-images.idx", "-labels.idx", 1},
    {"-images.npy", "-labels.npy", 0},
    {".npz", NULL, 0},
    {".safetensors", NULL, 0},
    {".csv", NULL, 1},
    {"", NULL, 0}, /* a folder of that name, with a folder of pictures for each class */
};

/* Returns true if the file exists, or if an error other than "not found" occurred, which the caller
 * meets again when it opens the file. */
static bool is_there(const char *dir, const char *part, const char *name, int may_be_gzipped,
                     char path[PATH_MAX])
{
    for (int i = 0; i <= may_be_gzipped; i++) {
        if (snprintf(path, PATH_MAX, "%s/%s%s%s", dir, part, name, i ? ".gz" : "") >= PATH_MAX)
            return false;
        if (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
            return true;
    }
    return false;
}

static enum status copy_path(const char *from, char to[PATH_MAX])
{
    if (strlen(from) >= PATH_MAX) {
        LOG_E("'%.60s...': the path is too long", from);
        return ST_INVALID;
    }
    strcpy(to, from);
    return ST_OK;
}

static const char *dir_flag(const struct dataset_request *r)
{
    return r->dir_flag ? r->dir_flag : "data_dir";
}

enum status dataset_find_check_path(const char *part, const char *of, const char *path)
{
    char from[PATH_MAX], where[PATH_MAX + 64] = "";
    if (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return ST_OK;
    if (path[0] != '/' && getcwd(from, sizeof from))
        snprintf(where, sizeof where, "; a relative path begins in the working directory, %s",
                 from);
    LOG_E("--%s_%s=%s: there is no such file%s%s", part, of, path,
          strcmp(of, "data") == 0 ? " or folder" : "", where);
    return ST_NOT_FOUND;
}

/* Refuses a path that is not a folder. The default folder may be missing; the search for its files
 * then logs the error. */
static enum status check_dir(const struct dataset_request *r)
{
    char other[96] = "put the file into a folder under one of the names of docs/guide/data.md";
    struct stat info;
    if (strcmp(r->dir, DATASET_DEFAULT_DIR) == 0)
        return ST_OK;
    if (stat(r->dir, &info) != 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return ST_OK;
        LOG_E("--%s=%s: there is no such folder", dir_flag(r), r->dir);
        return ST_NOT_FOUND;
    }
    if (S_ISDIR(info.st_mode))
        return ST_OK;
    if (!r->dir_flag)
        snprintf(other, sizeof other, "name a file with --%.16s_data", r->part);
    LOG_E("--%s=%s: is a file, but the flag needs a folder; %s", dir_flag(r), r->dir, other);
    return ST_INVALID;
}

static enum status no_validation(const struct dataset_request *r)
{
    LOG_E(
        "--%s: no validation data in %s: neither val, validation, test nor t10k under the names of docs/guide/data.md (val/, val.npz, val.csv, val-images-idx3-ubyte, ...), nor a folder of pictures for each class",
        dir_flag(r), r->dir);
    return ST_NOT_FOUND;
}

/* Returns the path of the script in an installation, otherwise in the repository. */
static const char *get_mnist(char path[PATH_MAX])
{
    char name[PATH_MAX], place[PATH_MAX];
    snprintf(name, sizeof name, "%s/scripts/get_mnist", program_dir_data);
    int is_there = program_dir_path(name, place, sizeof place) == ST_OK &&
                   access(place, X_OK) == 0 && realpath(place, path);
    return is_there ? path : "scripts/get_mnist";
}

static bool is_picture(const char *name)
{
    static const char *const ends[] = {".png", ".jpg", ".jpeg"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcasecmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

static bool has_picture(const char *dir)
{
    DIR *d = opendir(dir);
    int found = 0;
    for (struct dirent *e; d && !found && (e = readdir(d));)
        found = is_picture(e->d_name);
    if (d)
        closedir(d);
    return found;
}

/* Returns true if `dir` contains only folders whose names may be classes. *with: number of these
 * folders that contain a picture. */
static bool holds_classes(const char *dir, int *with)
{
    DIR *d = opendir(dir);
    char path[PATH_MAX];
    struct stat info;
    int n = 0, others = 0;
    *with = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        int is_folder = snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < PATH_MAX &&
                        stat(path, &info) == 0 && S_ISDIR(info.st_mode);
        n += is_folder;
        others += !is_folder || strcmp(e->d_name, prefix[TRAIN]) == 0;
        *with += is_folder && has_picture(path);
    }
    if (d)
        closedir(d);
    return n > 0 && others == 0;
}

static enum status nothing_found(const struct dataset_request *r)
{
    char files[48] = "", script[PATH_MAX];
    int with;
    if (!r->dir_flag && holds_classes(r->dir, &with) && with > 0) {
        LOG_E(
            "no %s data in %s: it holds only folders; if each has the pictures of a class, set --%s_data to this folder, otherwise set --data_dir to the folder with the data",
            r->part, r->dir, r->part);
        return ST_NOT_FOUND;
    }
    if (!r->dir_flag && has_picture(r->dir)) {
        LOG_E("no %s data in %s: it holds pictures; %sname %s with --%s_data", r->part, r->dir,
              r->to_predict
                  ? ""
                  : "put the pictures of each class into a folder named like the class, and ",
              r->to_predict ? "it" : "the parent of these folders", r->part);
        return ST_NOT_FOUND;
    }
    /* if --data_dir is not the flag that names the folder, no flag can name its files */
    if (!r->dir_flag)
        snprintf(files, sizeof files, ", or the files with --%.16s_data", r->part);
    LOG_E(
        "no %s data in %s: it has no file %s-images-idx3-ubyte (or .gz), no other file that docs/guide/data.md names, and no folder %s with a folder of pictures for each class; install Fashion-MNIST (apt-get install dataset-fashion-mnist), or fetch MNIST (%s), and name the data's folder with --%s%s",
        r->part, r->dir, r->part, r->part, get_mnist(script), dir_flag(r), files);
    return ST_NOT_FOUND;
}

/* Returns true if the folder contains CIFAR-10's files. For training data, finds the first
 * batch. */
static bool find_cifar(const struct dataset_request *r, int first, struct dataset_paths *out)
{
    const char *name = first == TRAIN ? "data_batch_1.bin" : "test_batch.bin";
    return first != VALIDATION && is_there(r->dir, "", name, 0, out->data);
}

/* Finds the files whose names begin with one of these prefixes; *out->data stays empty if there are
 * no such files. */
static enum status find_files(const struct dataset_request *r, int first, int n,
                              struct dataset_paths *out)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        for (int p = first; p < first + n; p++) {
            if (!is_there(r->dir, prefix[p], known[i].data, known[i].may_be_gzipped, out->data))
                continue;
            if (!known[i].labels ||
                is_there(r->dir, prefix[p], known[i].labels, known[i].may_be_gzipped, out->labels))
                return ST_OK;
            out->labels[0] = 0;
            if (r->to_predict)
                return ST_OK;
            LOG_E("%s has %s%s, but no %s%s%s: put the labels beside the samples", r->dir,
                  prefix[p], known[i].data, prefix[p], known[i].labels,
                  known[i].may_be_gzipped ? ", nor with .gz" : "");
            return ST_NOT_FOUND;
        }
    }
    if (!find_cifar(r, first, out))
        out->data[0] = 0;
    return ST_OK;
}

static enum status find_validation(const struct dataset_request *r, struct dataset_paths *out)
{
    int with;
    enum status st = find_files(r, VALIDATION, N_VALIDATION, out);
    if (st == ST_OK && !*out->data)
        st = find_files(r, TEST, N_TEST, out);
    if (st == ST_OK && !*out->data && holds_classes(r->dir, &with))
        st = copy_path(r->dir, out->data);
    return st == ST_OK && !*out->data ? no_validation(r) : st;
}

enum status dataset_find(const struct dataset_request *r, struct dataset_paths *out)
{
    enum status st = ST_OK;
    out->data[0] = out->labels[0] = 0;
    if (r->data) {
        TRY(copy_path(r->data, out->data));
        TRY(dataset_find_check_path(r->part, "data", r->data));
        if (r->labels)
            TRY(copy_path(r->labels, out->labels));
        return ST_OK;
    }
    if (!r->dir && r->may_be_absent)
        return ST_OK;
    if (strlen(r->dir) + 40 > PATH_MAX) {
        LOG_E("--%s=%.60s...: the path is too long", dir_flag(r), r->dir);
        return ST_NOT_FOUND;
    }
    TRY(check_dir(r));
    if (strcmp(r->part, "validation") == 0)
        return find_validation(r, out);
    int is_test = strcmp(r->part, "test") == 0;
    TRY(find_files(r, is_test ? TEST : TRAIN, is_test ? N_TEST : 1, out));
    if (!*out->data && !r->may_be_absent)
        st = nothing_found(r);
done:
    return st;
}
