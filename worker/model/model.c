/* worker/model/model.c - finds and reads a model's file. A text that has no '/' and does not end
 * with ".json" is the name of a model in the models folder; any other text is a path. The folder is
 * beside the program: ../share/weir/models in an installation, ../../examples/models from a build
 * folder in the repository. */
#include "base/log.h"
#include "base/program_dir.h"
#include "worker/model/model_private.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_PLACES = 2 };

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Writes the names of the models in a folder, sorted, "a, b, c", cut to fit; "none" if there are
 * none. */
static void list_models(const char *dir, char *dst, size_t bytes)
{
    char *names[64];
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && n < 64 && (e = readdir(d));) {
        size_t length = strlen(e->d_name);
        if (length <= 5 || strcmp(e->d_name + length - 5, ".json") != 0)
            continue;
        names[n] = strndup(e->d_name, length - 5);
        n += names[n] != NULL;
    }
    if (d)
        closedir(d);
    qsort(names, (size_t)n, sizeof *names, by_name);
    snprintf(dst, bytes, "%s", n ? "" : "none");
    for (int i = 0; i < n; i++) {
        char shown[80];
        size_t used = strlen(dst);
        snprintf(dst + used, bytes - used, "%s%s", i ? ", " : "",
                 model_json_printable(shown, sizeof shown, names[i]));
        free(names[i]);
    }
}

/* Finds <name>.json. If the file does not exist (ST_NOT_FOUND), logs the searched folders and the
 * models in them. */
static enum status find_named(const char *name, const char *models_dir, char path[PATH_MAX])
{
    char dir[PATH_MAX], looked[2 * PATH_MAX + 8] = "", known[600] = "none", installed[PATH_MAX];
    const char *const places[N_PLACES] = {installed, "../../examples/models"};
    snprintf(installed, sizeof installed, "%s/models", program_dir_data);
    for (int i = 0; i < (models_dir ? 1 : N_PLACES); i++) {
        if (models_dir)
            snprintf(dir, sizeof dir, "%s", models_dir);
        else if (program_dir_path(places[i], dir, sizeof dir) != ST_OK)
            continue;
        int fits = snprintf(path, PATH_MAX, "%s/%s.json", dir, name) < PATH_MAX;
        if (fits && access(path, F_OK) == 0)
            return ST_OK;
        size_t used = strlen(looked);
        snprintf(looked + used, sizeof looked - used, "%s%s", used ? " and " : "", dir);
        if (access(dir, F_OK) == 0)
            list_models(dir, known, sizeof known);
    }
    if (!looked[0]) {
        LOG_E(
            "cannot find a model named \"%s\": the folder of Weir's models is unknown, because this program's own path is unknown (/proc/self/exe: %s); name the folder with --models_dir, or a file with --model=FILE",
            name, strerror(errno));
        return ST_NOT_FOUND;
    }
    LOG_E(
        "no model named \"%s\" in %s (it has: %s); name one of these, or a file with --model=FILE",
        name, looked, known);
    return ST_NOT_FOUND;
}

static enum status io_error(const char *path, const char *what)
{
    enum status st = errno == ENOENT ? ST_NOT_FOUND : status_of_errno(errno);
    LOG_E("model file %s: %s: %s", path, what, strerror(errno));
    return st;
}

static enum status read_file(const char *path, char **text, size_t *bytes)
{
    enum status st = ST_OK;
    struct stat info;
    char *data = NULL;
    size_t n = 0;
    /* O_NONBLOCK: a pipe given as the path must not block. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return io_error(path, "cannot be opened");
    if (fstat(fd, &info) != 0) {
        TRY(io_error(path, "its attributes cannot be read"));
    } else if (!S_ISREG(info.st_mode)) {
        LOG_E("model file %s: not a regular file", path);
        TRY(ST_INVALID);
    } else if (info.st_size > MODEL_MAX_BYTES) {
        LOG_E("model file %s: %lld bytes; a model file has at most %d", path,
              (long long)info.st_size, MODEL_MAX_BYTES);
        TRY(ST_INVALID);
    }
    data = malloc((size_t)info.st_size + 1);
    if (!data) {
        LOG_E("model file %s: no memory", path);
        TRY(ST_NOMEM);
    }
    while (n < (size_t)info.st_size) {
        ssize_t got = read(fd, data + n, (size_t)info.st_size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            TRY(io_error(path, "cannot be read"));
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *text = data;
    *bytes = n;
    data = NULL;
done:
    free(data);
    close(fd);
    return st;
}

enum status model_read(const char *file, const char *models_dir, int hidden_units,
                       struct model **out)
{
    return model_read_for(file, models_dir, hidden_units, NULL, out);
}

static enum status find_and_read(const char *file, const char *models_dir, char path[PATH_MAX],
                                 char **text, size_t *bytes)
{
    size_t n = strlen(file);
    enum status st;
    int is_path = strchr(file, '/') || (n > 5 && strcmp(file + n - 5, ".json") == 0);
    if (is_path)
        snprintf(path, PATH_MAX, "%s", file);
    else
        TRY(find_named(file, models_dir, path));
    TRY(read_file(path, text, bytes));
done:
    return st;
}

enum status model_read_for(const char *file, const char *models_dir, int hidden_units,
                           const struct model_data *data, struct model **out)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    enum status st;
    TRY(find_and_read(file, models_dir, path, &text, &bytes));
    TRY(model_parse_for(text, bytes, path, hidden_units, data, out));
done:
    free(text);
    return st;
}

enum status model_inputs_read(const char *file, const char *models_dir, struct model_inputs *out)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    enum status st;
    TRY(find_and_read(file, models_dir, path, &text, &bytes));
    TRY(model_inputs_parse(text, bytes, path, out));
done:
    free(text);
    return st;
}

void model_destroy(struct model *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n_params; i++)
        free((char *)m->params[i].name);
    for (int i = 0; m->device && i < m->n_layers; i++)
        free((char *)m->device[i]);
    for (int i = 0; i < m->n_tables; i++)
        table_settings_free(&m->tables[i].settings);
    model_inputs_free(&m->inputs);
    free(m->tables);
    free(m->text);
    free(m->device);
    free(m->after);
    free(m->layers);
    free(m->params);
    free(m->inits);
    free(m);
}
