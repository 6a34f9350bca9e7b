/* cluster/slurm.c - expands brackets and repetitions of Slurm's lists; see slurm.h. */
#include "cluster/slurm.h"
#include "base/log.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 254, MAX_BRACKETS = 8, MAX_DIGITS = 9 };

/* A name that is being assembled. */
struct name {
    char text[NAME_BYTES];
    size_t n;
    int brackets;
};

static const char *const TOO_MANY = "has too many nodes; at most 4096 are allowed";
static const char *const BRACKETS = "has wrong brackets; a correct list is node[01-04,07]";

/* Reads a number of at most MAX_DIGITS digits. Returns the number of its digits; 0: the text does
 * not begin with a number. */
static int read_number(const char *p, long *value)
{
    int n = 0;
    for (*value = 0; n < MAX_DIGITS && isdigit((unsigned char)p[n]); n++)
        *value = *value * 10 + (p[n] - '0');
    return isdigit((unsigned char)p[n]) ? 0 : n;
}

static const char *add_name(struct hosts *out, const struct name *name)
{
    if (out->n >= HOSTS_MAX)
        return TOO_MANY;
    char **grown = realloc(out->addr, (size_t)(out->n + 1) * sizeof *grown);
    if (grown)
        out->addr = grown;
    char *copy = grown ? strndup(name->text, name->n) : NULL;
    if (!copy)
        return "";
    out->addr[out->n++] = copy;
    return NULL;
}

static const char *expand(const char *p, const char *end, struct name name, struct hosts *out);

/* Expands the range lo-hi, which is one of the entries of a bracket; `rest` follows the bracket. */
static const char *expand_range(const char *part, const char *rest, const char *end,
                                const struct name *before, struct hosts *out)
{
    long lo, hi;
    int width = read_number(part, &lo), more = width;
    const char *after = part + width;
    hi = lo;
    if (*after == '-') {
        more = read_number(++after, &hi);
        after += more;
    }
    if (!width || !more || hi < lo || (*after != ',' && *after != ']'))
        return BRACKETS;
    const char *wrong = NULL;
    for (; lo <= hi && !wrong; lo++) {
        struct name name = *before;
        int n = snprintf(name.text + name.n, sizeof name.text - name.n, "%0*ld", width, lo);
        name.n += (size_t)n;
        wrong = name.n >= sizeof name.text ? "has a name that is too long"
                                           : expand(rest, end, name, out);
    }
    return wrong;
}

/* Adds all names that begin with `name` and continue by the pattern from p to end. Returns NULL, ""
 * if memory ran out, or a text that describes the fault. */
static const char *expand(const char *p, const char *end, struct name name, struct hosts *out)
{
    for (; p < end && *p != '['; p++) {
        if (!isalnum((unsigned char)*p) && !strchr("-._", *p))
            return *p == ']' ? BRACKETS
                             : "has a character that is not allowed in the name of a node";
        if (name.n + 1 >= sizeof name.text)
            return "has a name that is too long";
        name.text[name.n++] = *p;
    }
    if (p == end)
        return name.n ? add_name(out, &name) : "has an empty name";
    const char *close = memchr(p, ']', (size_t)(end - p)), *wrong = NULL;
    if (!close || ++name.brackets > MAX_BRACKETS)
        return BRACKETS;
    for (const char *part = p + 1; part <= close && !wrong; part++) {
        wrong = expand_range(part, close + 1, end, &name, out);
        part += strcspn(part, ",]");
    }
    return wrong;
}

/* Returns the comma that ends a name: the next comma outside of brackets. */
static const char *name_end(const char *p)
{
    for (int inside = 0; *p && (*p != ',' || inside); p++)
        inside = *p == '[' || (inside && *p != ']');
    return p;
}

enum status slurm_nodes_expand(const char *text, struct hosts *out)
{
    struct hosts h = {0};
    const char *wrong = NULL;
    for (const char *p = text, *end; !wrong; p = end + 1) {
        end = name_end(p);
        wrong = expand(p, end, (struct name){.n = 0}, &h);
        if (!*end)
            break;
    }
    if (!wrong) {
        *out = h;
        return ST_OK;
    }
    hosts_free(&h);
    if (!*wrong)
        return ST_NOMEM;
    LOG_E("Slurm's list of nodes '%.100s' %s", text, wrong);
    return ST_INVALID;
}

enum status slurm_counts_expand(const char *text, int *counts, int n)
{
    int at = 0, sum = 0, ok = 1;
    for (const char *p = text; ok; p++) {
        long count, times = 1;
        int digits = read_number(p, &count);
        p += digits;
        if (strncmp(p, "(x", 2) == 0) {
            int more = read_number(p + 2, &times);
            p += 2 + more;
            ok = more && *p == ')';
            p += ok;
        }
        ok = ok && digits && count >= 1 && count <= HOSTS_MAX && times >= 1 && times <= n - at &&
             (!*p || *p == ',');
        for (; ok && times > 0; times--) {
            counts[at++] = (int)count;
            sum += (int)count;
            ok = sum <= HOSTS_MAX;
        }
        if (ok && !*p)
            break;
    }
    if (ok && at == n)
        return ST_OK;
    LOG_E(
        "Slurm's tasks per node '%.100s' do not fit the %d %s of the Slurm step; an example is 2(x3),1, and at most %d tasks are allowed",
        text, n, n == 1 ? "node" : "nodes", HOSTS_MAX);
    return ST_INVALID;
}
