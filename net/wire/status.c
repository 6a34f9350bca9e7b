/* net/wire/status.c - see status.h. */
#include "net/wire/status.h"
#include <stdlib.h>

void net_status_free(struct net_status *s)
{
    chunks_destroy(s->chunks);
    free(s->model);
    free(s->members);
    free(s->servers);
    free(s->tables);
    *s = (struct net_status){.chunks = NULL};
}
