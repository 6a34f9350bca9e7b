/* worker/weights/weights_source.h - named tensors from which --init, --evaluate and --predict read
 * values: a safetensors file (floats of any width; a PyTorch state dict, a Weir export), or a
 * checkpoint of a Weir job. The path of a checkpoint is that of its manifest, or of a folder. In a
 * folder the newest complete checkpoint is read, or the manifest `best`. --evaluate and --predict
 * read the averages of the parameters from a checkpoint that has them (optim_config.ema_decay).
 * Owns:    the opened files, and the table of tensors. Threads: one at a time.
 * Errors:  ST_NOT_FOUND, ST_CORRUPT, ST_UNSUPPORTED, ST_INVALID, ST_MISMATCH, ST_IO, ST_NOMEM;
 *          logged with the flag and the path. */
#ifndef WORKER_WEIGHTS_WEIGHTS_SOURCE_H
#define WORKER_WEIGHTS_WEIGHTS_SOURCE_H
#include "base/shape.h"
#include "base/status.h"
#include "checkpoint/restore.h"
#include "worker/weights/weights_origin.h"

struct weights_tensor {
    const char *name;
    struct shape shape;
    int64_t n_elems;
    const char *dtype; /* name of the dtype in the file */
    bool is_float;     /* values of this dtype can be read */
    bool is_count;     /* integers or booleans, such as PyTorch's num_batches_tracked */
    int used;          /* not used by weights_source.c; the caller may use this field */
    int64_t at;        /* used only by weights_source.c */
};

struct weights_source;
/* Finds the checkpoint, and compares all of its files with their checksums. Logs a line while that
 * lasts long. The caller closes it. */
enum status weights_source_find_checkpoint(const char *flag, const char *path,
                                           struct checkpoint_restore **out);
/* Opens the file or the checkpoint. flag: name of the flag that has the path, for errors.
 * checkpoint: what weights_source_find_checkpoint has found, borrowed; NULL: not opened yet. */
enum status weights_source_open(const char *flag, const char *path,
                                struct checkpoint_restore *checkpoint, struct weights_source **out);
void weights_source_close(struct weights_source *s); /* NULL is fine */
/* Returns true for the path of a checkpoint, false for that of a safetensors file. */
bool weights_source_is_checkpoint(const char *path);
/* Returns the opened checkpoint; NULL: the source is a file. */
const struct checkpoint_restore *weights_source_checkpoint(const struct weights_source *s);
/* Returns the tensors, sorted by name. */
struct weights_tensor *weights_source_tensors(struct weights_source *s, int *n);
struct weights_tensor *weights_source_find(struct weights_source *s,
                                           const char *name); /* NULL: no such tensor */
/* Finds the tensor that has this name without the parts of PyTorch's wrappers: `_orig_mod`
 * (torch.compile) and similar ones anywhere, `module` (DataParallel) at the beginning, any number
 * of times and in any order. *out NULL: no such tensor. ST_MISMATCH: there are two. */
enum status weights_source_find_wrapped(struct weights_source *s, const char *name,
                                        struct weights_tensor **out);
/* Returns false if the file's description of the normalisation is invalid. */
bool weights_source_origin(const struct weights_source *s, struct weights_origin *out);
/* Reads all n_elems elements of a tensor of floats, as float32; checks the tensor's checksum, if
 * there is one. ST_INVALID: a value is not finite, or does not fit a float. */
enum status weights_source_read(struct weights_source *s, const struct weights_tensor *t,
                                float *dst);

#endif
