/* tests/emulation/runtime.c - see the header: the functions of CUDA's runtime about cards and the
 * driver that the backend calls. */
#include "tests/emulation/runtime.h"
#include "tests/emulation/errors.h"
#include "tests/emulation/machine.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void emulation_fail(const char *what)
{
    fprintf(stderr, "emulation: %s\n", what);
    abort();
}

cudaError_t cudaGetDeviceCount(int *out)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    *out = emulation_n_devices();
    if (emulation_driver_error() != 0)
        return emulation_answer((cudaError_t)emulation_driver_error());
    return emulation_answer(*out > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    FAULT(emulation_answer(cudaErrorUnknown));
    int pci[3];
    if (device < 0 || device >= emulation_n_devices())
        return emulation_answer(cudaErrorInvalidDevice);
    memset(out, 0, sizeof *out);
    emulation_identity(device, out->name, sizeof out->name, (unsigned char *)out->uuid.bytes, pci);
    out->pciDomainID = pci[0];
    out->pciBusID = pci[1];
    out->pciDeviceID = pci[2];
    out->totalGlobalMem = emulation_total_bytes(device);
    emulation_capability(device, &out->major, &out->minor);
    return emulation_answer(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *out)
{
    *out = emulation_driver_version();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *out)
{
    *out = 0;
    return cudaSuccess;
}
