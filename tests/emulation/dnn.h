/* tests/emulation/dnn.h - what the files of the emulated cuDNN share: its handle and descriptors.
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

/* Queues run(args), whose bytes are copied, on the handle's stream. */
cudnnStatus_t emulation_dnn_do(const char *name, cudnnHandle_t h, void (*run)(const void *),
                               const void *args, size_t bytes);

#endif
