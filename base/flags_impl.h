/* base/flags_impl.h - private to flags*.c: spelling of names, and texts that list the flags.
 * Owns: nothing. Threads: any. */
#ifndef BASE_FLAGS_IMPL_H
#define BASE_FLAGS_IMPL_H
#include "base/flags.h"

/* Returns true if the n bytes at `got` spell `name`. A dash and an underscore are the same. */
bool flags_name_is(const char *name, const char *got, size_t n);
/* Finds the flag of the program that the n bytes at `got` name. A flag is also found by its name in
 * other software (struct flag_foreign). NULL: none. */
const struct flag *flags_name_find(const struct flags_program *prog, const char *got, size_t n);
/* Logs that the argument, "--name=value" or with one dash, is not a flag of the program, and which
 * flag to write instead if that is clear. */
void flags_name_report_unknown(const struct flags_program *prog, const char *arg);
/* Names of other software for which every program suggests a flag; the list ends with NULL
 * names. */
extern const struct flag_foreign flags_neighbours[];

/* Returns true if the program accepts the flag without a value (--NAME instead of --NAME=VALUE). */
int flags_stand_alone(const struct flag *f);
/* Returns the name of the flag's value in --help. */
const char *flags_print_arg_name(const struct flag *f);

/* Prints the sections of a manual page that depend on the table, in roff's man(7). help: one text
 * for each flag, with its default. */
void flags_print_man(const struct flags_program *prog, char *const *help);
/* Prints the script by which bash completes the flags of the installed program. */
void flags_print_bash(const struct flags_program *prog);

#endif
