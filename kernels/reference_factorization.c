/* kernels/reference_factorization.c - the factorization machine by its definition, the sums over
 * pairs of columns, without the partial sums that backends use. */
#include "kernels/reference_factorization.h"

/* Returns the sum of value u of the columns [0, to), without column `skip`. */
static double sum_of(const struct layer *l, const double *row, int64_t u, int64_t to, int64_t skip)
{
    double sum = 0;
    for (int64_t g = 0; g < to; g++)
        sum += g == skip ? 0 : row[g * l->in.dim[2] + u];
    return sum;
}

void reference_factorization_forward(const struct layer *l, int n, const double *x, double *y)
{
    int64_t columns = l->in.dim[0], units = l->in.dim[2];
    for (int s = 0; s < n; s++) {
        const double *row = x + s * columns * units;
        y[s] = 0;
        for (int64_t u = 0; u < units; u++)
            for (int64_t f = 0; f < columns; f++)
                y[s] += row[f * units + u] * sum_of(l, row, u, f, f);
    }
}

void reference_factorization_backward(const struct layer *l, int n, const double *x,
                                      const double *dy, double *dx)
{
    int64_t columns = l->in.dim[0], units = l->in.dim[2], row = columns * units;
    for (int64_t k = 0; k < n * row; k++)
        dx[k] += dy[k / row] * sum_of(l, x + k / row * row, k % units, columns, k % row / units);
}
