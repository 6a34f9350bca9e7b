/* worker/data/data_array.h - an array of numbers of one type, as a file stores it, and the decoders
 * of the formats with such arrays: IDX, npy, npz, safetensors. A decoder checks the header against
 * the length of the file. The decoded array points into the file.
 *     IDX: 0 0 type rank | u32 big-endian dims | numbers, big-endian.
 *          type: 8 uint8, 9 int8, 0xb int16, 0xc int32, 0xd float32.
 *     npy: "\x93NUMPY" major minor | u16 (major 1) or u32 length, little-endian | {'descr': '|u1',
 *          'fortran_order': False, 'shape': (n, ...), } | numbers.
 *     npz: a zip archive of npy files, stored or deflated; zip64 if it is large.
 *     safetensors: see files/safetensors.h.
 * Threads: none of its own.
 * Errors:  ST_CORRUPT, ST_UNSUPPORTED (type or order of the numbers), ST_NOT_FOUND (no such
 *          member), ST_NOMEM; one line with file, place and fix. */
#ifndef WORKER_DATA_DATA_ARRAY_H
#define WORKER_DATA_DATA_ARRAY_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { DATA_MAX_DIMS = 8, DATA_MAX_NAME = 256 };

enum data_array_type {
    DATA_U8,
    DATA_I8,
    DATA_U16,
    DATA_I16,
    DATA_U32,
    DATA_I32,
    DATA_U64,
    DATA_I64,
    DATA_F32,
    DATA_F64,
    DATA_F16,
    DATA_BF16, /* safetensors only */
    DATA_BOOL,
    DATA_N_TYPES
};

struct data_array {
    enum data_array_type type;
    int swapped; /* big-endian */
    int n_dims;
    int64_t dim[DATA_MAX_DIMS];
    const uint8_t *data; /* dim[0] x dim[1] x ... numbers, not aligned; borrowed from the file */
    /* offset of data in the file; in a compressed npz: offset in the unpacked member */
    uint64_t offset;
    void *unpacked; /* memory of `data`, which the holder frees; NULL: `data` is in the file */
};

/* Decodes a whole file in memory; label: its name, in errors. */
enum status data_idx_decode(const uint8_t *bytes, uint64_t n, const char *label,
                            struct data_array *out);
enum status data_npy_decode(const uint8_t *bytes, uint64_t n, const char *label,
                            struct data_array *out);
/* Decodes a member of the archive; name: its name without ".npy". */
enum status data_npz_decode(const uint8_t *bytes, uint64_t n, const char *label, const char *name,
                            struct data_array *out);
/* Decodes a tensor of a file; path: name of the file, which has these n bytes. */
enum status data_safetensors_decode(const uint8_t *bytes, uint64_t n, const char *path,
                                    const char *name, struct data_array *out);

/* Sets *found to 1 if the member or the tensor exists, otherwise to 0. Errors: the file is not
 * valid. */
enum status data_npz_find(const uint8_t *bytes, uint64_t n, const char *label, const char *name,
                          int *found);
enum status data_safetensors_find(const char *path, const char *name, int *found);

const char *data_array_type_name(enum data_array_type type); /* "uint8" */
int data_array_type_bytes(enum data_array_type type);
/* Returns true for floating-point types. Labels of such a type are read as targets. */
bool data_array_type_is_float(enum data_array_type type);
/* Returns true for types whose numbers samples use unchanged; all other numbers are divided by
 * 255. */
bool data_array_type_is_plain(enum data_array_type type);
/* Logs that samples of this type, which is neither float32 nor a type of whole numbers, are
 * converted to float32. */
void data_array_log_converted(const struct data_array *a, const char *path, const char *what);
#define DATA_BEYOND_FLOAT "beyond the range of float32 (up to 3.4e38)"
/* Returns the number of elements of the array, or of one row of the array (all dims but the first).
 * -1: more than 2^62. */
int64_t data_array_elems(const struct data_array *a);
int64_t data_array_row_elems(const struct data_array *a);
/* Writes a text such as "(60000, 28, 28)". */
const char *data_array_shape(const struct data_array *a, char *dst, uint64_t bytes);
/* Returns number i of an array whose type has only whole numbers; at most 2^63 - 1. */
int64_t data_array_integer(const struct data_array *a, int64_t i);
/* Returns number i of an array whose type is plain (data_array_type_is_plain). */
double data_array_plain(const struct data_array *a, int64_t i);
/* Copies n numbers, beginning with the i-th. Whole numbers are divided by 255; floats and bool (0
 * or 1) are copied unchanged. */
void data_array_floats(const struct data_array *a, int64_t i, int64_t n, float *dst);

#endif
