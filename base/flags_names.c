/* base/flags_names.c - see flags_impl.h. A flag is suggested only if a typing error in exactly one
 * flag's name could have produced the unknown name, because a wrong suggestion is worse than
 * none. */
#include "base/flags_impl.h"
#include "base/log.h"
#include <stdint.h>
#include <string.h>

enum { NAME_MAX_CHARS = 64 };

static char plain(char c)
{
    return c == '-' ? '_' : c;
}

static bool is_same(const char *name, const char *got, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!name[i] || plain(name[i]) != plain(got[i]))
            return false;
    return true;
}

bool flags_name_is(const char *name, const char *got, size_t n)
{
    return is_same(name, got, n) && name[n] == 0;
}

/* Returns the flag that this program uses, even if another program's flag with the same name is
 * before it in the table. */
static const struct flag *find_own(const struct flags_program *prog, const char *got, size_t n)
{
    const struct flag *unused = NULL;
    for (size_t i = 0; i < prog->n_flags; i++) {
        const struct flag *f = &prog->flags[i];
        if (!flags_name_is(f->name, got, n))
            continue;
        if (f->target)
            return f;
        unused = f;
    }
    return unused;
}

/* Returns the row with that name. rows: NULL, or a list that ends with NULL names. */
static const struct flag_foreign *find_foreign(const struct flag_foreign *rows, const char *got,
                                               size_t n)
{
    for (const struct flag_foreign *f = rows; f && f->names; f++)
        for (const char *name = f->names; *name; name += strspn(name, " ")) {
            size_t length = strcspn(name, " ");
            if (length == n && is_same(name, got, n))
                return f;
            name += length;
        }
    return NULL;
}

const struct flag *flags_name_find(const struct flags_program *prog, const char *got, size_t n)
{
    const struct flag *own = find_own(prog, got, n);
    const struct flag_foreign *f = own ? NULL : find_foreign(prog->foreign, got, n);
    return f && f->ours ? find_own(prog, f->ours, strlen(f->ours)) : own;
}

/* Returns the number of edits (insert, remove or change a letter, swap two neighbours) that turn
 * one name into the other. */
static size_t edit_distance(const char *a, const char *b, size_t nb)
{
    size_t rows[3][NAME_MAX_CHARS + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    if (nb > NAME_MAX_CHARS)
        return SIZE_MAX;
    for (size_t j = 0; j <= nb; j++)
        last[j] = j;
    for (size_t i = 0; a[i]; i++) {
        row[0] = i + 1;
        for (size_t j = 0; j < nb; j++) {
            size_t best = last[j] + (plain(a[i]) != plain(b[j]));
            size_t other = (last[j + 1] < row[j] ? last[j + 1] : row[j]) + 1;
            if (i > 0 && j > 0 && plain(a[i]) == plain(b[j - 1]) &&
                plain(a[i - 1]) == plain(b[j]) && before[j - 1] + 1 < best)
                best = before[j - 1] + 1;
            row[j + 1] = other < best ? other : best;
        }
        size_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[nb];
}

/* Returns the only flag that the name is likely to mean; NULL: none, or several. */
static const char *guess(const struct flags_program *prog, const char *got, size_t n)
{
    size_t best = n < 4 ? 0 : n < 8 ? 1 : n < 12 ? 2 : 3;
    const char *near = NULL;
    int n_near = 0;
    for (size_t i = 0; i < prog->n_flags; i++) {
        size_t d = edit_distance(prog->flags[i].name, got, n);
        if (d > best || (near && !strcmp(near, prog->flags[i].name)))
            continue;
        n_near = d < best ? 1 : n_near + 1;
        near = prog->flags[i].name;
        best = d;
    }
    return n_near == 1 ? near : NULL;
}

/* Returns the flag to suggest for the n bytes at `got`; NULL: no flag's name is similar. */
static const char *suggest(const struct flags_program *prog, const char *got, size_t n)
{
    if (flags_name_is("h", got, n) || flags_name_is("help", got, n))
        return "help";
    /* finds a flag that was typed with one dash */
    const struct flag *f = flags_name_find(prog, got, n);
    return f ? f->name : guess(prog, got, n);
}

static bool leads_to_own(const struct flags_program *prog, const struct flag_foreign *f)
{
    return f->ours && find_own(prog, f->ours, strlen(f->ours));
}

const char *flags_suggest(const struct flags_program *prog, const char *name)
{
    size_t n = strlen(name);
    const struct flag_foreign *other = find_foreign(flags_neighbours, name, n);
    if (other)
        return leads_to_own(prog, other) ? other->ours : NULL;
    const struct flag *f = flags_name_find(prog, name, n);
    return f ? f->name : guess(prog, name, n);
}

void flags_name_report_unknown(const struct flags_program *prog, const char *arg)
{
    size_t n_dashes = arg[1] == '-' ? 2 : 1, n = strcspn(arg + n_dashes, "=");
    const char *got = arg + n_dashes;
    int shown = (int)(n_dashes + (n > 100 ? 100 : n));
    const struct flag_foreign *f = find_foreign(prog->foreign, got, n);
    const struct flag_foreign *other = f ? NULL : find_foreign(flags_neighbours, got, n);
    bool has_other = other && leads_to_own(prog, other);
    const char *near = f ? NULL : has_other ? other->ours : suggest(prog, got, n);
    if ((f && f->text) || (other && other->text && (has_other || !other->ours)))
        LOG_E("unknown flag %.*s: %s", shown, arg, f ? f->text : other->text);
    else if (other && !has_other)
        LOG_E(
            "unknown flag %.*s; it looks like the worker's --%s, which this program does not have; --help lists all",
            shown, arg, other->ours);
    else if (near)
        LOG_E("unknown flag %.*s; did you mean --%s?", shown, arg, near);
    else
        LOG_E("unknown flag %.*s; %s--help lists all", shown, arg,
              n_dashes == 1 ? "flags begin with two dashes, " : "");
}
