/* tests/emulation/dnn.h - the handle and descriptors of the emulated cuDNN, shared by its files.
 * Errors: they end the program. Threads: any. */
#ifndef TESTS_EMULATION_DNN_H
#define TESTS_EMULATION_DNN_H
#include "tests/emulation/values.h"
#include <cudnn.h>

struct cudnnContext {
    struct emulation_handle handle;
};
struct cudnnTensorStruct {
    int d[4];
    cudnnDataType_t type;
};
struct cudnnFilterStruct {
    int d[4];
    cudnnDataType_t type;
};
struct cudnnConvolutionStruct {
    int pad[2], stride[2];
    cudnnMathType_t math;
};

static inline size_t elems(const int d[4])
{
    return (size_t)d[0] * (size_t)d[1] * (size_t)d[2] * (size_t)d[3];
}

/* Returns a value of a tensor that may be in bfloat16. */
static inline float value_get(const void *at, cudnnDataType_t type, size_t k)
{
    if (type == CUDNN_DATA_FLOAT)
        return ((const float *)at)[k];
    uint32_t u = (uint32_t)((const uint16_t *)at)[k] << 16;
    float value;
    memcpy(&value, &u, sizeof value);
    return value;
}

static inline void value_set(void *at, cudnnDataType_t type, size_t k, float value)
{
    if (type == CUDNN_DATA_FLOAT) {
        ((float *)at)[k] = value;
        return;
    }
    uint32_t u;
    value = emulation_rounded(value, BF16_BITS);
    memcpy(&u, &value, sizeof u);
    ((uint16_t *)at)[k] = (uint16_t)(u >> 16);
}

/* Queues run(args) on the handle's stream. `args` is copied. */
cudnnStatus_t emulation_dnn_do(const char *name, cudnnHandle_t h, void (*run)(const void *),
                               const void *args, size_t bytes);

#endif
