/* r/weir/src/gpu.h - the calls of gpu.c, which member.c registers. */
#ifndef R_WEIR_SRC_GPU_H
#define R_WEIR_SRC_GPU_H
#include <Rinternals.h>

SEXP r_gpu_reserve(SEXP uuid, SEXP fraction, SEXP lock_dir);
SEXP r_gpu_release(SEXP pointer);

#endif
