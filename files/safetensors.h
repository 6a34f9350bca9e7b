/* files/safetensors.h - tensors in files that Python's `safetensors` opens. Layout:
 *     u64 little-endian N | N bytes of JSON, padded with spaces to a multiple of 8 | data
 * The JSON is:
 *     {"__metadata__":{key:text,...}, name:{"dtype":"F32","shape":[..],"data_offsets":[begin,end]}}
 * The data are little-endian numbers, tensor after tensor in the header's order without gaps. The
 * metadata contain, for each tensor, "crc32c NAME": 8 hex digits of the CRC-32C of its bytes. A
 * file of another program has no checksums; then the reader checks none. The file's content decides
 * only how much memory the header needs: at most SAFETENSORS_MAX_HEADER bytes, and never more than
 * the file has.
 * Owns:    an open file owns its descriptor and table.
 * Threads: any thread may read an open file.
 * Errors:  writing: ST_IO, ST_NOMEM, ST_UNSUPPORTED (also: the header would be too long); logged
 *          with the path and errno's text.
 *          Reading: ST_NOT_FOUND; ST_CORRUPT, ST_UNSUPPORTED (another dtype): the file is bad;
 *          ST_IO, ST_NOMEM (also: no descriptors): reading failed now, but the file may be good.
 *          Not logged: `why` gets a sentence, and the caller logs it with the file's purpose. */
#ifndef FILES_SAFETENSORS_H
#define FILES_SAFETENSORS_H
#include "base/shape.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAFETENSORS_MAX_HEADER = 32 << 20, SAFETENSORS_WHY_BYTES = 512 };

/* Formats of a tensor's numbers. */
enum safetensors_dtype {
    SAFETENSORS_F32,
    SAFETENSORS_F64,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_I64,
    SAFETENSORS_OTHER, /* other integers, booleans, 8-bit floats, unknown dtypes */
};
static inline bool safetensors_is_float(enum safetensors_dtype dtype)
{
    return dtype <= SAFETENSORS_BF16;
}

struct safetensors_tensor {
    const char *name; /* printable, unique, not "__metadata__" */
    struct shape shape;
    const void *data;
    enum safetensors_dtype dtype; /* SAFETENSORS_F32, SAFETENSORS_BF16 or SAFETENSORS_I64 */
};

struct safetensors_content {
    const struct safetensors_tensor *tensors; /* all borrowed for the call */
    int n_tensors;
    const char *const (*metadata)[2]; /* key, value */
    int n_metadata;
};

struct safetensors_written {
    uint64_t bytes;
    uint32_t crc32c; /* checksum of all bytes before the data, including the tensors' checksums */
};

/* Writes the file as in durable.h. `out` receives its size and the checksum of its header, and
 * may be NULL. */
enum status safetensors_write(const char *path, const struct safetensors_content *content,
                              struct safetensors_written *out);

/* Writes a file whose tensors need not be in memory at the same time. Each is added once, in the
 * order of `content`. There, a tensor's shape is a bound for each of its dimensions, and the data
 * are ignored, unless the file is in place (durable.h). Such a file needs all data in `content`,
 * with their exact shapes, because its header cannot be written after the data. */
struct safetensors_writer;
/* Begins the file. The lists of the content are borrowed until safetensors_end. */
enum status safetensors_begin(const char *path, const struct safetensors_content *content,
                              struct safetensors_writer **out);
enum status safetensors_add(struct safetensors_writer *w, const struct shape *shape,
                            const void *data);
/* Completes the file. All tensors must have been added. */
enum status safetensors_commit(struct safetensors_writer *w, struct safetensors_written *out);
void safetensors_end(struct safetensors_writer *w); /* NULL is fine */

struct safetensors_entry {
    const char *name;
    struct shape shape;
    enum safetensors_dtype dtype;
    const char *dtype_text; /* "F32"; static or owned by the file */
    int elem_bytes;         /* 0: the dtype is unknown */
    int64_t n_elems;
    uint64_t bytes;
    uint64_t offset; /* offset of the tensor's data in the file, in bytes */
    int has_crc;
    uint32_t crc32c;
};

struct safetensors_file;
enum status safetensors_open(const char *path, struct safetensors_file **out,
                             char why[SAFETENSORS_WHY_BYTES]);
/* Opens a file whose tensors may have any dtype. The caller reads only tensors of the dtypes above.
 */
enum status safetensors_open_any(const char *path, struct safetensors_file **out,
                                 char why[SAFETENSORS_WHY_BYTES]);
void safetensors_close(struct safetensors_file *f); /* NULL is fine */
/* Returns the entries in the order of their data. */
const struct safetensors_entry *safetensors_entries(const struct safetensors_file *f, int *n);
/* Returns the text of the key; NULL: the file has no such key. */
const char *safetensors_metadata(const struct safetensors_file *f, const char *key);
/* Reads n elements of a float32 entry, beginning with element `first`. */
enum status safetensors_read(const struct safetensors_file *f, const struct safetensors_entry *e,
                             int64_t first, int64_t n, float *dst, char why[SAFETENSORS_WHY_BYTES]);
/* Reads the bytes of n elements of any dtype, elem_bytes each. */
enum status safetensors_read_raw(const struct safetensors_file *f,
                                 const struct safetensors_entry *e, int64_t first, int64_t n,
                                 void *dst, char why[SAFETENSORS_WHY_BYTES]);
/* Checks the file's size and header against `whole`, and that each tensor has a checksum. */
enum status safetensors_check_header(const struct safetensors_file *f,
                                     const struct safetensors_written *whole,
                                     char why[SAFETENSORS_WHY_BYTES]);
/* Computes the size and checksum that safetensors_write returned for this file. */
enum status safetensors_measure(const struct safetensors_file *f, struct safetensors_written *out,
                                char why[SAFETENSORS_WHY_BYTES]);
/* Reads one tensor and compares it with its checksum. ST_CORRUPT if it has none. */
enum status safetensors_check_entry(const struct safetensors_file *f,
                                    const struct safetensors_entry *e,
                                    char why[SAFETENSORS_WHY_BYTES]);
/* Reads the whole file and compares every tensor with its checksum. whole: the expected size and
 * checksum; then each tensor must have a checksum. NULL: only checksums in the file are compared.
 * `why` names the fault of a bad file. */
enum status safetensors_check(const struct safetensors_file *f,
                              const struct safetensors_written *whole,
                              char why[SAFETENSORS_WHY_BYTES]);

#endif
