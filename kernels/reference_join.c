/* kernels/reference_join.c - layers that add or multiply outputs, by their definitions:
 *     add        y[k] = sum of the inputs' values k
 *     concat     the rows of the inputs, one after the other
 *     multiply   y[k] = product of the inputs' values k
 *     sum        y[k] = sum of value k of all channels; of a flat input, of all values */
#include "kernels/reference_join.h"
#include <string.h>

const double *reference_output(const struct reference *r, int layer)
{
    return layer < 0 ? r->x : r->y[layer];
}

/* Returns the product of value k of all inputs except input `skip`; -1: of all. */
static double product(const struct reference *r, const struct layer *l, int64_t k, int skip)
{
    double out = 1;
    for (int j = 0; j < l->n_inputs; j++)
        out *= j == skip ? 1 : reference_output(r, l->input[j])[k];
    return out;
}

/* Returns the index in the output of value k of input j, which begins at `at` in each row. */
static int64_t place(const struct reference *r, const struct layer *l, int j, int64_t at, int64_t k)
{
    int64_t row = shape_elems(&l->out), elems = shape_elems(reference_shape(r, l->input[j]));
    int64_t in = k % elems;
    return k / elems * row + at + (l->kind == LAYER_SUM ? in % row : in);
}

void reference_join_forward(struct reference *r, const struct layer *l, double *y)
{
    int64_t n = r->n * shape_elems(&l->out), at = 0;
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t k = 0; k < n && l->kind == LAYER_MULTIPLY; k++)
        y[k] = product(r, l, k, -1);
    for (int j = 0; j < l->n_inputs && l->kind != LAYER_MULTIPLY; j++) {
        int64_t elems = shape_elems(reference_shape(r, l->input[j]));
        const double *x = reference_output(r, l->input[j]);
        for (int64_t k = 0; k < r->n * elems; k++)
            y[place(r, l, j, at, k)] += x[k];
        at += l->kind == LAYER_CONCAT ? elems : 0;
    }
}

void reference_join_backward(struct reference *r, const struct layer *l, const double *dy)
{
    int64_t at = 0;
    for (int j = 0; j < l->n_inputs; j++) {
        int64_t elems = shape_elems(reference_shape(r, l->input[j]));
        for (int64_t k = 0; k < r->n * elems && l->input[j] >= 0; k++)
            r->d[l->input[j]][k] +=
                dy[place(r, l, j, at, k)] * (l->kind == LAYER_MULTIPLY ? product(r, l, k, j) : 1);
        at += l->kind == LAYER_CONCAT ? elems : 0;
    }
}
