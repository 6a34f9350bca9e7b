/* worker/train/auc.c - computes the AUC from ranks, see auc.h. Samples with equal scores share the
 * mean of their ranks (Mann and Whitney 1947). Ranks and counts are multiples of a half, so doubles
 * hold their sum exactly. */
#include "worker/train/auc.h"
#include "base/log.h"
#include <math.h>
#include <stdlib.h>

struct sample {
    float score;
    bool is_positive;
};

struct auc {
    int64_t n, most, n_positive;
    bool has_nan;
    struct sample sample[];
};

enum status auc_create(int64_t most, struct auc **out)
{
    struct auc *a = malloc(sizeof *a + (size_t)most * sizeof a->sample[0]);
    if (!a) {
        LOG_E("no memory for the scores of %lld test samples, from which the AUC is computed",
              (long long)most);
        return ST_NOMEM;
    }
    *a = (struct auc){.most = most};
    *out = a;
    return ST_OK;
}

void auc_destroy(struct auc *a)
{
    free(a);
}

void auc_add(struct auc *a, float score, bool is_positive)
{
    CHECK(a->n < a->most);
    a->sample[a->n++] = (struct sample){score, is_positive};
    a->n_positive += is_positive;
    a->has_nan |= isnan(score) != 0;
}

static int by_score(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    return (x->score > y->score) - (x->score < y->score);
}

double auc_value(struct auc *a)
{
    double ranks = 0, n_positive = (double)a->n_positive;
    double n_negative = (double)(a->n - a->n_positive);
    if (a->has_nan || a->n_positive == 0 || a->n_positive == a->n)
        return (double)NAN;
    qsort(a->sample, (size_t)a->n, sizeof a->sample[0], by_score);
    for (int64_t first = 0, end; first < a->n; first = end) {
        int64_t n = 0;
        for (end = first; end < a->n && a->sample[end].score == a->sample[first].score; end++)
            n += a->sample[end].is_positive;
        ranks += (double)n * (double)(first + end + 1) / 2;
    }
    return (ranks - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative);
}
