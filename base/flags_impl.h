/* base/flags_impl.h - what flags*.c share: names as they are typed, and what is printed of them.
 * Owns: nothing. Threads: any. */
#ifndef BASE_FLAGS_IMPL_H
#define BASE_FLAGS_IMPL_H
#include "base/flags.h"

/* True if the n bytes at `got` spell `name`; a dash and an underscore are the same. */
bool flags_name_is(const char *name, const char *got, size_t n);
/* The program's flag of the n bytes at `got`, also under a name it has elsewhere; NULL: none. */
const struct flag *flags_name_find(const struct flags_program *prog, const char *got, size_t n);
/* Logs that the argument, "--name=value" or with one dash, is no flag of the program, and which
 * flag to write instead where that is clear. */
void flags_name_report_unknown(const struct flags_program *prog, const char *arg);
/* Names for which each program suggests a flag; ends with NULL names. */
extern const struct flag_foreign flags_neighbours[];

/* Whether the flag may be without a value. */
int flags_stand_alone(const struct flag *f);
/* What its value is called. */
const char *flags_print_arg_name(const struct flag *f);

/* To stdout: the sections of a manual page that the table decides, in roff's man(7); help: of each
 * flag, with its default. */
void flags_print_man(const struct flags_program *prog, char *const *help);
/* To stdout: bash's completion of the installed program. */
void flags_print_bash(const struct flags_program *prog);

#endif
