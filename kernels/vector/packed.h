/* kernels/vector/packed.h - a float that may be stored at any address, for reading network buffers.
 * It costs no time on machines that load vectors from any address. */
#ifndef KERNELS_VECTOR_PACKED_H
#define KERNELS_VECTOR_PACKED_H

/* ThreadSanitizer checks each access to a packed type by its slowest function, which would be a
 * third of the work of its tests. Its machines read from any address without the attribute, too.
 * It then checks an access that crosses a multiple of 8 bytes only up to there. */
#ifdef __SANITIZE_THREAD__
#define VECTOR_PACKED __attribute__((may_alias))
#else
#define VECTOR_PACKED __attribute__((packed, may_alias))
#endif

struct VECTOR_PACKED packed_float {
    float v;
};

#endif
