/* kernels/vector/packed.h - a float that may be stored at any address, for reading network buffers.
 * It costs no time on machines that load vectors from any address. */
#ifndef KERNELS_VECTOR_PACKED_H
#define KERNELS_VECTOR_PACKED_H

struct __attribute__((packed, may_alias)) packed_float {
    float v;
};

#endif
