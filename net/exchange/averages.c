/* net/exchange/averages.c - see averages.h. If a stream breaks, its requests for averages are sent
 * again, like pulls. */
#include "net/exchange/averages.h"
#include "net/exchange/exchange_requests.h"

enum status net_exchange_averages(struct net_exchange *x, float *out)
{
    enum status st = ST_OK;
    x->averages = out;
    for (int i = 0; i < x->n_dense && st == ST_OK; i++) /* rows have no averages */
        st = exchange_request_average(x, i);
    return st == ST_OK ? net_exchange_wait(x, 0, x->n_dense, 0) : st;
}
