/* base/flags_path.c - values of flags that are paths: see flags.h. A shell expands ~ only at the
 * start of a word, so it leaves the ~ of --flag=~/runs as it is. An address such as gs://bucket/run
 * would be read as a folder "gs:". In both cases the program would use a folder that the operator
 * did not mean. */
#include "base/flags.h"
#include "base/log.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool flags_is_path(const struct flag *f)
{
    return f->type == FLAG_STRING && f->arg &&
           (strncmp(f->arg, "FILE", 4) == 0 || strcmp(f->arg, "DIR") == 0 ||
            strcmp(f->arg, "PATH") == 0);
}

/* Returns the length of SCHEME in SCHEME://REST; 0: the text has no scheme. */
static int scheme_length(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (n > 0 && text[n] && strchr("+.-", text[n])))
        n++;
    return n > 0 && strncmp(text + n, "://", 3) == 0 ? (int)n : 0;
}

enum status flags_path_take(const struct flag *f, const char *value, char **out)
{
    const char *home = "";
    int scheme = scheme_length(value);
    *out = NULL;
    if (scheme > 0) {
        LOG_E(
            "--%s=%.300s: only paths of this machine can be read and written, and '%.*s://' is an address; mount or copy that data, and write its path",
            f->name, value, scheme < 20 ? scheme : 20, value);
        return ST_INVALID;
    }
    if (value[0] == '~') {
        home = getenv("HOME");
        if ((value[1] && value[1] != '/') || !home || !*home) {
            LOG_E("--%s=%.300s: %s; write the whole path, or ./~... for a file of that name",
                  f->name, value,
                  home && *home ? "only ~/ at the beginning is replaced, by your home folder"
                                : "~ stands for the folder in HOME, which is not set");
            return ST_INVALID;
        }
        value++;
    }
    return asprintf(out, "%s%s", home, value) < 0 ? ST_NOMEM : ST_OK;
}
