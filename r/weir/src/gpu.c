/* r/weir/src/gpu.c - provides weir_gpu_reserve of weir.h to R's .Call; R/gpus.R chooses the GPU. */
#include "gpu.h"
#include <Rinternals.h>
#include <weir.h>

enum { WHY_BYTES = 1024 };

static void release(SEXP pointer)
{
    weir_gpu_release((struct weir_gpu *)R_ExternalPtrAddr(pointer));
    R_ClearExternalPtr(pointer);
}

/* Returns the reservation, or list(code, sentence). */
SEXP r_gpu_reserve(SEXP uuid, SEXP fraction, SEXP lock_dir)
{
    struct weir_gpu *gpu = NULL;
    char why[WHY_BYTES] = "";
    int code = weir_gpu_reserve(CHAR(STRING_ELT(uuid, 0)), Rf_asReal(fraction),
                                CHAR(STRING_ELT(lock_dir, 0)), &gpu, why, sizeof why);
    if (code == WEIR_OK) {
        SEXP pointer = PROTECT(R_MakeExternalPtr(gpu, R_NilValue, R_NilValue));
        R_RegisterCFinalizerEx(pointer, release, TRUE);
        UNPROTECT(1);
        return pointer;
    }
    SEXP out = PROTECT(Rf_allocVector(VECSXP, 2));
    SET_VECTOR_ELT(out, 0, Rf_ScalarInteger(code));
    SET_VECTOR_ELT(out, 1, Rf_ScalarString(Rf_mkCharCE(why, CE_UTF8)));
    UNPROTECT(1);
    return out;
}

SEXP r_gpu_release(SEXP pointer)
{
    release(pointer);
    return R_NilValue;
}
