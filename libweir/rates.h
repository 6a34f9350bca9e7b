/* libweir/rates.h - factors of the job's learning rate and weight decay. Private to libweir/. */
#ifndef LIBWEIR_RATES_H
#define LIBWEIR_RATES_H
#include "libweir/weir_impl.h"

/* Sets and returns the error of a call that would result in a statistic with factors. */
int weir_rates_refuse_statistic(struct weir *w, int param);
/* Refuses factors of parameters if no optimizer of Weir would use them; logged. */
enum status weir_rates_check(const struct weir *w);
/* Sets the factor of the learning rate to 1 at the beginning of a step. */
void weir_rates_begin_step(const struct weir *w);

#endif
