/* http/library.c - see library.h. */
#include "http/library.h"
#include "base/log.h"
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#define LIBRARY "libmicrohttpd.so.12"

/* Copies the function's address to `to`. dlsym returns a pointer to data, which C does not let
 * a program assign to a pointer to a function. */
static bool find(void *library, const char *name, void *to, size_t bytes)
{
    void *at = dlsym(library, name);
    memcpy(to, &at, bytes);
    return at != NULL;
}

enum status http_library_load(struct http_library *out)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    bool found = library != NULL;
#define X(name) found = found && find(library, "MHD_" #name, &out->name, sizeof out->name);
    HTTP_FUNCTIONS(X)
#undef X
    if (found)
        return ST_OK;
    LOG_E("--metrics_port needs libmicrohttpd (Debian's package libmicrohttpd12): %s", dlerror());
    return ST_NOT_FOUND;
}
