/* worker/results/predictions.h - a file of what a network says of each sample: its index in the
 * data, its class (the largest output), and all outputs. The name's end says the format: .csv
 * index,class,p0,p1,...; one line a sample .jsonl  {"index":0,"class":3,"probabilities":[...]}; one
 * line a sample; null: not finite .npy    NumPy's, of a structured type: index <i8, class <i4,
 * probabilities <f4 (classes) of pictures the first two have the name of the file behind the index,
 * and where the classes have names that of the class behind its number:
 * index,file,class,class_name,p0,... and "file", "class_name"; where outputs are scores (squared
 * error), they are s0, s1, ... and "scores"; where they are what targets are compared with, y0, y1,
 * ... and "outputs", and there is no class. The file is there whole or not at all. Owns:    the
 * file until it is closed. Threads: one. Errors:  ST_IO, ST_NOMEM; logged with the path. */
#ifndef WORKER_RESULTS_PREDICTIONS_H
#define WORKER_RESULTS_PREDICTIONS_H
#include "base/status.h"
#include <stdint.h>

#define PREDICTIONS_ENDS ".csv, .jsonl, .npy"
/* 0: the name has none of them. */
int predictions_format_known(const char *path);

struct predictions_config {
    const char *path;
    int64_t n;               /* samples that will be added, in order */
    int classes;             /* outputs of one */
    int are_scores;          /* 0: probabilities */
    int no_classes;          /* they are what targets are compared with */
    const char *files;       /* of the samples, as in data_images.h; NULL: they are of no files */
    const char *class_names; /* a list as in data_words.h; NULL: they have none */
};

struct predictions;
enum status predictions_create(const struct predictions_config *cfg, struct predictions **out);
/* The next sample's outputs. */
enum status predictions_add(struct predictions *p, const float *output);
/* All were added: now the file is there. */
enum status predictions_commit(struct predictions *p);
void predictions_destroy(struct predictions *p); /* NULL is fine */

#endif
