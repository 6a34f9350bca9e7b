/* base/flags.c - see flags.h. A first pass over argv replaces every name by its spelling in the
 * table, and finds errors that argp would describe poorly (unknown names, stray words). Then argp
 * parses the flags and writes the help text. Abbreviations are refused: a flag added later must not
 * change what an old command line means. */
#include "base/flags_impl.h"
#include "base/log.h"
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef WEIR_VERSION
#define WEIR_VERSION "0.1.0"
#endif

enum { KEY_HELP = 0x10000, KEY_VERSION, KEY_FIRST };

/* Data that outlive a parse: the values of string flags point into `args`, and flags_dump compares
 * values with `defaults`. */
static struct {
    char **args; /* argv in canonical form, n_args strings */
    int n_args;
    const char **words; /* words that are not flags; point into the caller's argv */
    int n_words;
    char **defaults; /* [n_defaults] value of each flag before the parse, as text */
    size_t n_defaults;
    char *unused; /* " --a --b": flags of the other program on the command line; NULL: none */
} kept;

static void free_strings(char **s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(s[i]);
    free(s);
}

static void forget_last_parse(void)
{
    free_strings(kept.args, (size_t)kept.n_args);
    free_strings(kept.defaults, kept.n_defaults);
    free(kept.words);
    free(kept.unused);
    memset(&kept, 0, sizeof kept);
}

/* Finds the word with this index in "a|b|c". Returns its length, or -1 past the end. */
static int choice_word(const char *choices, int index, const char **word)
{
    if (index < 0) /* a negative index, which stands for the default, has no word */
        return -1;
    for (; index > 0; index--) {
        choices = strchr(choices, '|');
        if (!choices)
            return -1;
        choices++;
    }
    *word = choices;
    return (int)strcspn(choices, "|");
}

static char *value_text(const struct flag *f)
{
    char *text = NULL;
    const char *word = "";
    int n = 0;
    if (!f->target)
        return strdup("");
    switch (f->type) {
    case FLAG_STRING:
        return strdup(*(const char **)f->target ? *(const char **)f->target : "");
    case FLAG_INT:
        n = asprintf(&text, "%" PRId64, *(int64_t *)f->target);
        break;
    case FLAG_DOUBLE:
        n = asprintf(&text, "%.9g", *(double *)f->target);
        break;
    case FLAG_BOOL:
        if (*(int *)f->target < 0)
            return strdup("");
        return strdup(*(int *)f->target ? "true" : "false");
    case FLAG_MAYBE:
        if (*(int *)f->target < 0)
            return strdup("");
        /* fall through */
    case FLAG_CHOICE:
        n = choice_word(f->choices, *(int *)f->target, &word);
        n = asprintf(&text, "%.*s", n < 0 ? 0 : n, word);
        break;
    }
    return n < 0 ? NULL : text;
}

int flags_stand_alone(const struct flag *f)
{
    return f->type == FLAG_BOOL || f->type == FLAG_MAYBE;
}

static enum status check_bounds(const struct flag *f, double v, const char *arg)
{
    if (f->min == 0 && f->max == 0)
        return ST_OK;
    if (v < f->min) {
        LOG_E("--%s: %s is below %.15g, the lowest allowed value", f->name, arg, f->min);
        return ST_INVALID;
    }
    if (v > f->max) {
        LOG_E("--%s: %s is above %.15g, the highest allowed value", f->name, arg, f->max);
        return ST_INVALID;
    }
    return ST_OK;
}

static enum status set_number(const struct flag *f, const char *arg)
{
    char *end;
    errno = 0;
    if (f->type == FLAG_INT) {
        long long v = strtoll(arg, &end, 10);
        if (end == arg || *end || isspace((unsigned char)*arg)) {
            LOG_E("--%s: '%.100s' is not a whole number", f->name, arg);
            return ST_INVALID;
        }
        if (errno == ERANGE) {
            LOG_E("--%s: %.100s does not fit in 64 bits", f->name, arg);
            return ST_INVALID;
        }
        enum status st = check_bounds(f, (double)v, arg);
        if (st == ST_OK)
            *(int64_t *)f->target = v;
        return st;
    }
    double v = strtod(arg, &end);
    if (end == arg || *end || isspace((unsigned char)*arg) || !isfinite(v)) {
        LOG_E("--%s: '%.100s' is not a number", f->name, arg);
        return ST_INVALID;
    }
    enum status st = check_bounds(f, v, arg);
    if (st == ST_OK)
        *(double *)f->target = v;
    return st;
}

static enum status set_bool(const struct flag *f, const char *arg)
{
    static const struct {
        const char *word;
        int value;
    } words[] = {{"true", 1}, {"false", 0}, {"1", 1}, {"0", 0}};
    if (!arg) {
        *(int *)f->target = 1;
        return ST_OK;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(arg, words[i].word) == 0) {
            *(int *)f->target = words[i].value;
            return ST_OK;
        }
    }
    LOG_E("--%s: '%.100s' is neither true nor false", f->name, arg);
    return ST_INVALID;
}

int flags_choice_find(const char *choices, const char *text)
{
    const char *word;
    int n;
    for (int i = 0; (n = choice_word(choices, i, &word)) >= 0; i++)
        if (strlen(text) == (size_t)n && strncmp(text, word, (size_t)n) == 0)
            return i;
    return -1;
}

static enum status set_choice(const struct flag *f, const char *arg)
{
    int choice = flags_choice_find(f->choices, arg);
    if (choice < 0) {
        LOG_E("--%s: '%.100s' is not one of %s", f->name, arg, f->choices);
        return ST_INVALID;
    }
    *(int *)f->target = choice;
    return ST_OK;
}

static enum status set_flag(const struct flag *f, char *arg)
{
    switch (f->type) {
    case FLAG_STRING:
        *(const char **)f->target = arg;
        return ST_OK;
    case FLAG_INT:
    case FLAG_DOUBLE:
        return set_number(f, arg);
    case FLAG_BOOL:
        return set_bool(f, arg);
    case FLAG_MAYBE:
        if (!arg) {
            *(int *)f->target = 0;
            return ST_OK;
        }
        /* fall through */
    case FLAG_CHOICE:
        return set_choice(f, arg);
    }
    return ST_INTERNAL;
}

enum status flags_set(const struct flag *f, const char *value)
{
    return set_flag(f, (char *)value);
}

/* Checks the value of another program's flag, and keeps the flag's name for flags_dump. The value
 * is NULL or points into argv. */
static enum status keep_unused(const struct flag *f, char *value)
{
    union {
        const char *text;
        int64_t i;
        double d;
        int n;
    } scratch;
    struct flag checked = *f;
    checked.target = &scratch;
    enum status st = set_flag(&checked, value);
    char *more = NULL;
    size_t n = strlen(f->name);
    const char *at = kept.unused ? strstr(kept.unused, f->name) : NULL;
    while (at && (at[-1] != '-' || (at[n] && at[n] != ' ')))
        at = strstr(at + 1, f->name);
    if (st != ST_OK || at)
        return st;
    if (asprintf(&more, "%s --%s", kept.unused ? kept.unused : "", f->name) < 0)
        return ST_NOMEM;
    free(kept.unused);
    kept.unused = more;
    return ST_OK;
}

static char last_char(const char *text)
{
    return *text ? text[strlen(text) - 1] : 0;
}

/* Reports a word that is neither a flag nor the value of a flag. */
static void report_stray(char **argv, int i)
{
    if (i > 1 && (argv[i][0] == ',' || last_char(argv[i - 1]) == ','))
        LOG_E(
            "'%.100s' is not a flag; a list must be one word: remove the spaces after its commas, or put the list in quotes",
            argv[i]);
    else
        LOG_E("'%.100s' is not a flag; write a value with its flag, as in --name=value", argv[i]);
}

/* Reports an unknown flag, and moves *i past the word that is most likely its value. */
static void report_unknown(const struct flags_program *prog, int argc, char **argv, int *i)
{
    flags_name_report_unknown(prog, argv[*i]);
    *i += !strchr(argv[*i], '=') && *i + 1 < argc && argv[*i + 1][0] != '-';
}

/* Returns true for a flag of this program: the value before it was forgotten. */
static bool is_flag(const struct flags_program *prog, const char *arg)
{
    return strncmp(arg, "--", 2) == 0 && flags_name_find(prog, arg + 2, strcspn(arg + 2, "="));
}

/* Writes one argument in its canonical form, --name or --name=value; NULL: the flag belongs to
 * another program. If the value is a separate argument, moves *i to it. */
static enum status canonical_arg(const struct flags_program *prog, int argc, char **argv, int *i,
                                 char **out)
{
    enum status st = ST_OK;
    const char *arg = argv[*i];
    char *path = NULL;
    if (arg[0] != '-' || !arg[1] || (arg[1] == '-' && !arg[2])) {
        report_stray(argv, *i);
        return ST_INVALID;
    }
    if (arg[1] != '-') {
        report_unknown(prog, argc, argv, i);
        return ST_INVALID;
    }
    size_t n = strcspn(arg + 2, "=");
    const char *value = arg[2 + n] == '=' ? arg + 3 + n : NULL;
    const char *name = NULL;
    if (flags_name_is("help", arg + 2, n) || flags_name_is("version", arg + 2, n)) {
        name = arg[2] == 'h' ? "help" : "version";
        value = arg[2] == 'h' ? value : NULL;
    } else {
        const struct flag *f = flags_name_find(prog, arg + 2, n);
        if (!f) {
            report_unknown(prog, argc, argv, i);
            return ST_INVALID;
        }
        name = f->name;
        if (!value && !flags_stand_alone(f)) {
            if (*i + 1 >= argc || is_flag(prog, argv[*i + 1])) {
                LOG_E("--%s: a value is missing; write --%s=VALUE", name, name);
                return ST_INVALID;
            }
            value = argv[++*i];
        }
        if (!f->target)
            return keep_unused(f, (char *)value);
        if (flags_is_path(f)) {
            TRY(flags_path_take(f, value, &path));
            value = path;
        }
    }
    if (asprintf(out, value ? "--%s=%s" : "--%s", name, value) < 0) {
        *out = NULL;
        st = ST_NOMEM;
    }
done:
    free(path);
    return st;
}

/* Writes all arguments in their canonical form. Reports every wrong name, not only the first. */
static enum status canonical_args(const struct flags_program *prog, int argc, char **argv)
{
    enum status first = ST_OK;
    kept.args = calloc((size_t)argc + 2, sizeof *kept.args);
    kept.words = calloc((size_t)argc + 1, sizeof *kept.words);
    if (!kept.args || !kept.words)
        return ST_NOMEM;
    const char *path = argc > 0 ? argv[0] : prog->name, *slash = strrchr(path, '/');
    kept.args[0] = strdup(slash ? slash + 1 : path);
    if (!kept.args[0])
        return ST_NOMEM;
    kept.n_args = 1;
    for (int i = 1; i < argc; i++) {
        if (prog->words && argv[i][0] != '-') {
            kept.words[kept.n_words++] = argv[i];
            continue;
        }
        enum status st = canonical_arg(prog, argc, argv, &i, &kept.args[kept.n_args]);
        if (st == ST_NOMEM)
            return st;
        if (first == ST_OK)
            first = st;
        kept.n_args += kept.args[kept.n_args] != NULL;
    }
    return first;
}

enum { HELP_MAN, HELP_BASH, HELP_LIST, HELP_NONE };
static const char help_kinds[] = "man|bash";

struct parse {
    const struct flags_program *prog;
    int help, version;
    enum status st;
};

static error_t on_option(int key, char *arg, struct argp_state *state)
{
    struct parse *p = state->input;
    if (key == KEY_HELP) {
        p->help = arg ? flags_choice_find(help_kinds, arg) : HELP_LIST;
        if (p->help < 0) {
            LOG_E("--help: '%.100s' is not one of %s; --help alone lists all flags", arg,
                  help_kinds);
            p->help = HELP_NONE;
            p->st = ST_INVALID;
        }
    } else if (key == KEY_VERSION)
        p->version = 1;
    else if (key >= KEY_FIRST && (size_t)(key - KEY_FIRST) < p->prog->n_flags) {
        enum status st = set_flag(&p->prog->flags[key - KEY_FIRST], arg);
        if (p->prog->given)
            p->prog->given[key - KEY_FIRST] = 1;
        if (p->st == ST_OK)
            p->st = st;
    } else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

/* Creates the option table for argp. docs owns the help texts, one per flag. */
static struct argp_option *make_options(const struct flags_program *prog, char **docs)
{
    struct argp_option *opts = calloc(2 * prog->n_flags + 3, sizeof *opts);
    size_t n = 0;
    int group = 0;
    for (size_t i = 0; opts && i < prog->n_flags; i++) {
        const struct flag *f = &prog->flags[i];
        const char *value = kept.defaults[i];
        if (!f->target)
            continue;
        int shown = *value && !(f->type == FLAG_BOOL && strcmp(value, "false") == 0);
        if (asprintf(&docs[i], shown ? "%s [%s]" : "%s", f->help, value) < 0) {
            docs[i] = NULL;
            free(opts);
            return NULL;
        }
        if (f->group)
            opts[n++] = (struct argp_option){.doc = f->group, .group = ++group};
        opts[n++] = (struct argp_option){.name = f->name,
                                         .key = KEY_FIRST + (int)i,
                                         .arg = flags_print_arg_name(f),
                                         .flags = flags_stand_alone(f) ? OPTION_ARG_OPTIONAL : 0,
                                         .doc = docs[i],
                                         .group = group};
    }
    if (opts) {
        opts[n++] = (struct argp_option){
            .name = "help",
            .key = KEY_HELP,
            .arg = help_kinds,
            .flags = OPTION_ARG_OPTIONAL,
            .doc =
                "Print this list and exit; man: as text for a manual page, bash: for bash's completion",
            .group = -1};
        opts[n++] = (struct argp_option){.name = "version",
                                         .key = KEY_VERSION,
                                         .doc = "Print the version and exit",
                                         .group = -1};
    }
    return opts;
}

static enum status keep_defaults(const struct flags_program *prog)
{
    kept.defaults = calloc(prog->n_flags + 1, sizeof *kept.defaults);
    if (!kept.defaults)
        return ST_NOMEM;
    for (; kept.n_defaults < prog->n_flags; kept.n_defaults++) {
        kept.defaults[kept.n_defaults] = value_text(&prog->flags[kept.n_defaults]);
        if (!kept.defaults[kept.n_defaults])
            return ST_NOMEM;
    }
    return ST_OK;
}

/* Prints the text that --help or --version asks for, with the name by which the program was
 * started: an installed program may have another name. */
static void print_asked(const struct parse *parse, const struct argp *argp, char *const *docs)
{
    if (parse->help == HELP_MAN)
        flags_print_man(parse->prog, docs);
    else if (parse->help == HELP_BASH)
        flags_print_bash(parse->prog);
    else if (parse->help == HELP_LIST)
        argp_help(argp, stdout,
                  ARGP_HELP_SHORT_USAGE | ARGP_HELP_PRE_DOC | ARGP_HELP_LONG | ARGP_HELP_POST_DOC,
                  kept.args[0]);
    else if (parse->version)
        printf("%s (Weir) %s\n", kept.args[0], WEIR_VERSION);
}

enum status flags_parse(const struct flags_program *prog, int argc, char **argv, int *exit_now)
{
    enum status st = ST_OK;
    struct argp_option *opts = NULL;
    char **docs = calloc(prog->n_flags + 1, sizeof *docs);
    struct parse parse = {.prog = prog, .help = HELP_NONE};
    *exit_now = 0;
    forget_last_parse();
    TRY(docs ? ST_OK : ST_NOMEM);
    TRY(keep_defaults(prog));
    TRY(canonical_args(prog, argc, argv));
    opts = make_options(prog, docs);
    TRY(opts ? ST_OK : ST_NOMEM);
    const struct argp argp = {
        .options = opts, .parser = on_option, .args_doc = prog->words, .doc = prog->doc};
    if (argp_parse(&argp, kept.n_args, kept.args, ARGP_NO_EXIT | ARGP_NO_HELP | ARGP_NO_ERRS, NULL,
                   &parse) != 0) {
        LOG_E("the command line cannot be parsed; --help lists all flags");
        st = ST_INVALID;
        goto done;
    }
    print_asked(&parse, &argp, docs);
    *exit_now = parse.help != HELP_NONE || parse.version;
    st = *exit_now ? ST_OK : parse.st;
done:
    if (st == ST_NOMEM)
        LOG_E("out of memory for the command line");
    free_strings(docs, docs ? prog->n_flags : 0);
    free(opts);
    return st;
}

const char *const *flags_words(int *n)
{
    *n = kept.n_words;
    return kept.words;
}

const char *flags_given_name(const struct flags_program *prog, const void *target)
{
    for (size_t i = 0; i < prog->n_flags; i++)
        if (prog->flags[i].target == target)
            return prog->given[i] ? prog->flags[i].name : NULL;
    return NULL;
}

void flags_dump(const struct flags_program *prog)
{
    for (size_t i = 0; i < prog->n_flags && i < kept.n_defaults; i++) {
        char *now = value_text(&prog->flags[i]);
        if (now && strcmp(now, kept.defaults[i]) != 0)
            LOG_D("--%s=%s", prog->flags[i].name, now);
        free(now);
    }
    if (kept.unused)
        LOG_I(
            "these flags are not used by %s, which accepts them so that one command line can serve ps and workers:%s",
            prog->name, kept.unused);
}
