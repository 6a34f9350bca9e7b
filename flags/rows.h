/* flags/rows.h - rows of struct flag, made of flags/table.inc. A program defines the macros of the
 * table by FLAG_ROW and includes the table in an array; target is NULL for a flag that the program
 * accepts and does not use. The headers below define the names and bounds in the table.
 * Owns: nothing. */
#ifndef FLAGS_ROWS_H
#define FLAGS_ROWS_H
#include "base/flags.h"
#include "base/hosts.h"
#include "kernels/vector/dtype.h"
#include "kernels/vector/optim.h"
#include "net/wire/chunks.h"
#include "net/wire/job.h"

#define FLAG_ROW(name_, type_, target_, ...)                                                       \
    {.name = name_, .type = FLAG_##type_, .target = target_, __VA_ARGS__},

#endif
