/* base/flags.h - one table of options per program: it feeds argp, --help, the manual page
 * (--help=man), bash's completion (--help=bash) and the start-up dump. Underscores and dashes are
 * the same in names (--ps_hosts, --ps-hosts). A boolean flag stands alone or has one of =true,
 * =false, =1, =0; a FLAG_MAYBE stands alone or has =word.
 * Threads: the main thread, before other threads start, except functions with the comment "Any
 *          thread".
 * Errors:  ST_INVALID, logged with the flag, its value and the accepted values. All unknown names
 *          are logged, not only the first. ST_NOMEM, logged. */
#ifndef BASE_FLAGS_H
#define BASE_FLAGS_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

enum flag_type { FLAG_STRING, FLAG_INT, FLAG_DOUBLE, FLAG_BOOL, FLAG_CHOICE, FLAG_MAYBE };

struct flag {
    const char *name;
    enum flag_type type;
    /* variable for the value: const char **, int64_t *, double *, int *, or int * for the index of
     * a choice. Before the parse it holds the default; a FLAG_BOOL with -1 has no default. NULL:
     * the flag belongs to another program; it is checked, but not stored and not in --help */
    void *target;
    double min, max; /* bounds of a number, both ends allowed */
    /* name of the value in --help; NULL: depends on the type. If it is FILE..., DIR or PATH, the
     * value is a path, see flags_is_path() */
    const char *arg;
    /* valid words: "sync|async". FLAG_MAYBE: the flag without a value means the first word; the
     * default -1 means that the flag was not given. FLAG_STRING: words that the shell's completion
     * offers; other values are valid too */
    const char *choices;
    const char *help;  /* text of --help: one sentence; flags_parse adds the default */
    const char *group; /* headline in --help, set for the first flag of a group; otherwise NULL */
};

/* Names by which users of other software may call one of Weir's flags. */
struct flag_foreign {
    const char *names; /* names, separated by spaces */
    /* our flag with the same meaning, if the program has it; NULL: the names are not accepted */
    const char *ours;
    const char *text; /* follows "unknown flag --name: "; one sentence with the fix */
};

struct flags_program {
    const char *name; /* "worker" */
    const char *doc;  /* purpose of the program, one paragraph; text after a \v is printed below the
                         list of flags */
    const struct flag *flags;
    size_t n_flags;
    /* name in --help for words that are not flags, such as "COMMAND"; NULL: such words are
     * refused */
    const char *words;
    /* [n_flags] zeros; flags_parse sets 1 for each flag on the command line. NULL: not needed */
    unsigned char *given;
    const struct flag_foreign *foreign; /* list that ends with NULL names; NULL: no list */
    const char *installed;              /* name of the installed file; NULL: name */
};

/* Parses the command line into the targets. --help and --version print to stdout and set *exit_now
 * to 1. */
enum status flags_parse(const struct flags_program *prog, int argc, char **argv, int *exit_now);
/* Returns the words of the last parse that are not flags, in their order; they point into argv. */
const char *const *flags_words(int *n);
/* Sets a flag that has a target, as the command line would. The target of a string then points to
 * `value`. Any thread. */
enum status flags_set(const struct flag *f, const char *value);
/* Returns true if the flag's value is a path. In a path ~/ becomes the home folder, and an address
 * such as gs://BUCKET is refused. Any thread. */
bool flags_is_path(const struct flag *f);
/* Sets *out to the path, malloc'd, that the value of such a flag stands for. ST_INVALID, logged;
 * ST_NOMEM. Any thread. */
enum status flags_path_take(const struct flag *f, const char *value, char **out);
/* Returns the name of the flag that a user most likely meant by an unknown name; NULL: no flag's
 * name is similar. Any thread. */
const char *flags_suggest(const struct flags_program *prog, const char *name);
/* Returns the index of a word in "sync|async"; -1: not found. Any thread. */
int flags_choice_find(const char *choices, const char *text);
/* Returns the name of the program's flag that keeps its value in target; NULL: the flag was not on
 * the command line of the last parse. */
const char *flags_given_name(const struct flags_program *prog, const void *target);
/* Logs every value that differs from its default, at debug level. Logs the flags of the last parse
 * that belong to another program in one line at info level. */
void flags_dump(const struct flags_program *prog);

#endif
