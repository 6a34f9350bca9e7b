/* kernels/backend.c - finds the shared object of a backend by name, loads it and returns its table.
 * A backend stays loaded until the process exits: the threads and caches of oneDNN and CUDA do not
 * survive an unload. */
#include "base/log.h"
#include "base/program_dir.h"
#include "kernels/backend_abi.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Returns the folder of the running program. */
static enum status own_dir(char *exe, size_t size, char *why)
{
    if (program_dir_path("", exe, size) != ST_OK) {
        snprintf(
            why, BACKEND_WHY_SIZE,
            "cannot find the program's own path for its backends (/proc/self/exe: %s); name their folder by --backend_dir",
            strerror(errno));
        return ST_NOT_FOUND;
    }
    return ST_OK;
}

enum { SO_PATH_SIZE = PATH_MAX + 64 };

/* Finds the file of a backend in the backend folder of an installation or a build, or beside the
 * program. */
static enum status find_beside(const char *name, char path[SO_PATH_SIZE], char *why)
{
    const char *const places[] = {program_dir_backends, "../lib", "."};
    enum status st = ST_OK;
    char own[PATH_MAX];
    TRY(own_dir(own, sizeof own, why));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int n = snprintf(path, SO_PATH_SIZE, "%s/%s/libweir_%s.so", own, places[i], name);
        if (n < SO_PATH_SIZE && access(path, F_OK) == 0)
            return ST_OK;
    }
    snprintf(
        why, BACKEND_WHY_SIZE,
        "backend '%s' cannot be loaded: libweir_%s.so is not in %s, in %.300s or in ../lib of that folder. If this build lacks the backend, the output of CMake states what the backend needs (the Debian package of the CUDA backend is weir-cuda). If the program was moved without its backends, name their folder by --backend_dir",
        name, name, program_dir_backends, own);
    st = ST_NOT_FOUND;
done:
    return st;
}

/* Returns true if the name consists only of letters, digits and '_', because it will be part of a
 * path. */
static int name_is_plain(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    return *name != '\0' && name[strspn(name, plain)] == '\0';
}

/* Returns the advice that fits a message of the dynamic loader. */
static const char *fix_for(const char *message)
{
    static const struct {
        const char *library, *fix;
    } known[] = {
        {"libweir_",
         "this build lacks the backend; the output of CMake states what the backend needs"},
        {"libcudnn", "install NVIDIA's package libcudnn9-cuda-12, with CUDA 13 libcudnn9-cuda-13"},
        {"libcublas.so.12", "install NVIDIA's package libcublas-12-4, or of a later CUDA 12"},
        {"libcublas", "install NVIDIA's package libcublas-13-0, or of a later CUDA 13"},
        {"libcudart.so.12", "install NVIDIA's package cuda-cudart-12-4, or of a later CUDA 12"},
        {"libcudart", "install NVIDIA's package cuda-cudart-13-0, or of a later CUDA 13"},
        {"libnccl", "install NVIDIA's package libnccl2"},
        {"libdnnl", "install Debian's package libdnnl2"},
        {"libgomp", "install Debian's package libgomp1"},
    };
    const char *file = message;
    for (const char *p = message; *p != '\0' && *p != ':'; p++)
        if (*p == '/')
            file = p + 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(message, "cannot open shared object file") &&
            strncmp(file, known[i].library, strlen(known[i].library)) == 0)
            return known[i].fix;
    return "build it, or install what it needs";
}

enum { ABI_TEXT_SIZE = 12 * BACKEND_ABI_PARTS };

/* Writes the parts of a version with dots between them, such as "1.248.208.672.11.32". */
static const char *abi_text(const uint32_t *abi, char *out)
{
    for (size_t k = 0, at = 0; k < BACKEND_ABI_PARTS; k++)
        at += (size_t)snprintf(out + at, ABI_TEXT_SIZE - at, "%s%u", k > 0 ? "." : "", abi[k]);
    return out;
}

/* Refuses a backend whose table has another interface version, before any field of the table is
 * read. */
static enum status abi_check(const char *name, const char *path, void *so, char *why)
{
    static const uint32_t own[BACKEND_ABI_PARTS] = BACKEND_ABI;
    char theirs[ABI_TEXT_SIZE] = "", ours[ABI_TEXT_SIZE];
    const uint32_t *abi = dlsym(so, "weir_backend_abi");
    if (abi != NULL && memcmp(abi, own, sizeof own) == 0)
        return ST_OK;
    if (abi != NULL)
        abi_text(abi, theirs);
    snprintf(
        why, BACKEND_WHY_SIZE,
        "backend '%s': %.300s is from another build: %s%s, but this program needs %s; build or install both from the same source, or name the folder of the matching backend by --backend_dir",
        name, path, abi != NULL ? "its interface version is " : "it has no interface version",
        theirs, abi_text(own, ours));
    return ST_NOT_FOUND;
}

enum status backend_find(const char *name, const char *dir, const struct backend **out, char *why)
{
    enum status st = ST_OK;
    char path[SO_PATH_SIZE];
    if (!name_is_plain(name) || strlen(name) > 32) {
        snprintf(why, BACKEND_WHY_SIZE,
                 "'%.100s' is not the name of a backend, such as 'cpu' or 'cuda'", name);
        return ST_NOT_FOUND;
    }
    if (dir == NULL)
        TRY(find_beside(name, path, why));
    else if ((size_t)snprintf(path, sizeof path, "%s/libweir_%s.so", dir, name) >= sizeof path) {
        snprintf(why, BACKEND_WHY_SIZE, "backend '%s': the folder's path is too long: %.300s", name,
                 dir);
        return ST_NOT_FOUND;
    }
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (so == NULL) {
        const char *message = dlerror();
        snprintf(why, BACKEND_WHY_SIZE, "backend '%s' cannot be loaded: %.300s; %s", name, message,
                 fix_for(message));
        return ST_NOT_FOUND;
    }
    const struct backend *found = dlsym(so, "weir_backend");
    if (found == NULL) {
        snprintf(why, BACKEND_WHY_SIZE,
                 "backend '%s': %.300s exports no weir_backend; it is not a Weir backend", name,
                 path);
        dlclose(so);
        return ST_NOT_FOUND;
    }
    st = abi_check(name, path, so, why);
    if (st != ST_OK)
        dlclose(so);
    else
        *out = found;
done:
    return st;
}

enum status backend_open(const char *name, const char *dir, const struct backend **out)
{
    char why[BACKEND_WHY_SIZE];
    enum status st = backend_find(name, dir, out, why);
    if (st != ST_OK)
        LOG_E("%s", why);
    return st;
}
