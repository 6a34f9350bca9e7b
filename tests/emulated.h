/* tests/emulated.h - opens the emulated CUDA backend of the build, and looks up its functions for
 * tests. Owns: nothing; the backend stays loaded. Threads: called by main(), before the tests.
 * Errors: emulated_open sets *status to the value that main() must return. */
#ifndef TESTS_EMULATED_H
#define TESTS_EMULATED_H
#include "kernels/backend.h"
#include "tests/skip.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Opens the backend and returns the handle of its library; NULL: this build has no such backend, or
 * it cannot be loaded. */
static inline void *emulated_open(const char *folder, const struct backend **backend, int *status)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/libweir_emulated.so", folder);
    *status = 1;
    if (access(path, F_OK) != 0)
        *status = skip_program("the emulated CUDA backend is not in this build");
    else if (backend_open("emulated", folder, backend) == ST_OK)
        return dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    return NULL;
}

/* Looks up a function. where: a pointer to a function pointer. Returns 0 if no function has this
 * name. */
static inline int emulated_look_up(void *so, const char *name, void *where)
{
    void *f = dlsym(so, name);
    memcpy(where, &f, sizeof f);
    return f != NULL;
}

#endif
