/* r/weir/src/gpu.h - the calls of gpu.c, which member.c registers. */
#ifndef R_WEIR_SRC_GPU_H
#define R_WEIR_SRC_GPU_H

struct SEXPREC; /* R declares SEXP as a pointer to it */

struct SEXPREC *r_gpu_reserve(struct SEXPREC *uuid, struct SEXPREC *fraction,
                              struct SEXPREC *lock_dir);
struct SEXPREC *r_gpu_release(struct SEXPREC *pointer);

#endif
