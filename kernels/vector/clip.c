/* kernels/vector/clip.c - computes the factor of clip.h in double precision. */
#include "kernels/vector/clip.h"
#include <math.h>

double clip_factor(double squares, float limit)
{
    double norm = sqrt(squares);
    if (!isfinite(norm))
        return 0;
    return norm <= (double)limit ? 1 : (double)limit / norm;
}
