/* base/signals.c - see signals.h. */
#include "base/signals.h"
#include <signal.h>

void signals_ignore_file_limit(void)
{
    signal(SIGXFSZ, SIG_IGN);
}
