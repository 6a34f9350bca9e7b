/* worker/weights/weights_source.h - named tensors that --init, --evaluate and --predict read values
 * from: a safetensors file (floats of any width; a PyTorch state dict, a Weir export), or a
 * checkpoint of a Weir job (its manifest; a folder: the newest in it that is whole; its `best`).
 * Owns:    what it opened, and the table of tensors.
 * Threads: one at a time.
 * Errors:  ST_NOT_FOUND, ST_CORRUPT, ST_UNSUPPORTED, ST_INVALID, ST_MISMATCH, ST_IO, ST_NOMEM;
 *          logged with the flag and the path. */
#ifndef WORKER_WEIGHTS_WEIGHTS_SOURCE_H
#define WORKER_WEIGHTS_WEIGHTS_SOURCE_H
#include "base/shape.h"
#include "base/status.h"
#include "worker/weights/weights_origin.h"

struct weights_tensor {
    const char *name;
    struct shape shape;
    int64_t n_elems;
    const char *dtype; /* as the file names it */
    int is_float;      /* a dtype that values are read of */
    int is_count;      /* integers or truth values, as PyTorch's num_batches_tracked */
    int used;          /* the caller's */
    int64_t at;        /* the source's */
};

struct weights_source;
/* flag: what errors call the path. */
enum status weights_source_open(const char *flag, const char *path, struct weights_source **out);
void weights_source_close(struct weights_source *s); /* NULL is fine */
/* 1: the path is a checkpoint's, else it is a safetensors file's. */
int weights_source_is_checkpoint(const char *path);
/* By name, ascending. */
struct weights_tensor *weights_source_tensors(struct weights_source *s, int *n);
struct weights_tensor *weights_source_find(struct weights_source *s,
                                           const char *name); /* or NULL */
/* Finds the tensor that has this name once the parts which PyTorch's wrappers add are left out:
 * `_orig_mod` (torch.compile) and the like anywhere, `module` (DataParallel) in front, as often as
 * they occur and in any order. *out NULL: there is none. ST_MISMATCH: there are two. */
enum status weights_source_find_wrapped(struct weights_source *s, const char *name,
                                        struct weights_tensor **out);
/* 0: what it says of its samples is no list of numbers. */
int weights_source_origin(const struct weights_source *s, struct weights_origin *out);
/* All n_elems of a tensor of floats, as floats; against its checksum, where it has one. A value
 * that is not finite, or not as a float: ST_INVALID. */
enum status weights_source_read(struct weights_source *s, const struct weights_tensor *t,
                                float *dst);

#endif
