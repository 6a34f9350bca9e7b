/* worker/results/predictions.h - a file with the outputs of a network for each sample: its index in
 * the data, its class (the largest output), and all outputs. The end of the file's name chooses the
 * format:
 *     .csv    index,class,p0,p1,...; one line per sample
 *     .jsonl  {"index":0,"class":3,"probabilities":[...]}; one line per sample; null is a number
 *             that is not finite
 *     .npy    a NumPy array of a structured type: index <i8, class <i4, probabilities <f4 (classes)
 * For pictures, .csv and .jsonl also have the name of the picture's file after the index. If the
 * classes have names, both formats have the name after the number of the class. So the fields are
 * index,file,class,class_name,p0,... in .csv, and "file" and "class_name" are added in .jsonl.
 * The only output of a network for two classes is the probability of class 1, which is "p1" in
 * .csv; the class is then 1 if the output is above 0.5. Scores (of a squared error) are called s0,
 * s1, ... and "scores" instead. Outputs that are compared with targets are called y0, y1, ... and
 * "outputs", and have no class. The file is either complete or missing. Owns:    the file until it
 * is closed. Threads: one. Errors: ST_IO, ST_NOMEM; logged with the path. */
#ifndef WORKER_RESULTS_PREDICTIONS_H
#define WORKER_RESULTS_PREDICTIONS_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define PREDICTIONS_ENDS ".csv, .jsonl, .npy"
/* Returns true if the path ends with .csv, .jsonl or .npy. */
bool predictions_format_known(const char *path);

struct predictions_config {
    const char *path;
    int64_t n;               /* samples that will be added, in order */
    int classes;             /* number of outputs of a sample */
    bool are_scores;         /* true: outputs are scores; false: probabilities */
    int no_classes;          /* the outputs are compared with targets */
    const char *files;       /* names of the samples' files, as in data_images.h; NULL: none */
    const char *class_names; /* a list as in data_words.h; NULL: no names */
};

struct predictions;
enum status predictions_create(const struct predictions_config *cfg, struct predictions **out);
/* Adds the outputs of the next sample. */
enum status predictions_add(struct predictions *p, const float *output);
/* Makes the complete file visible. Called when all samples were added. */
enum status predictions_commit(struct predictions *p);
void predictions_destroy(struct predictions *p); /* NULL is fine */

#endif
