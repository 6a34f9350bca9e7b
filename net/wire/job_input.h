/* net/wire/job_input.h - a job's transformations of samples before the model reads them. All
 * members use the same ones, in evaluation and prediction too.
 * Threads: plain values without a lock. */
#ifndef NET_WIRE_JOB_INPUT_H
#define NET_WIRE_JOB_INPUT_H
#include <stdbool.h>
#include <stddef.h>

enum { JOB_MAX_CHANNELS = 64, JOB_NUMBERS_BYTES = JOB_MAX_CHANNELS * 16 };

/* Normalisation: a number x of channel c becomes (x - mean[c]) / std[c], in float. */
struct job_normal {
    int n; /* channels of a sample; 0: no normalisation */
    /* value in the unit of the samples, after bytes are divided by 255 */
    float mean[JOB_MAX_CHANNELS];
    float std[JOB_MAX_CHANNELS]; /* value in the same unit; above 0 */
};

/* Random changes to a training sample (worker/data/augment.h), in pixels; 0: none. */
struct job_augment {
    bool flip;               /* swap left and right in some samples */
    int shift, crop, cutout; /* up to JOB_MAX_AUGMENT */
};
enum { JOB_MAX_AUGMENT = 65535, JOB_AUGMENT_BYTES = 64 };

bool job_input_augments(const struct job_augment *a); /* returns true if any change is set */
/* Writes the changes as "flip,shift:2,crop:4,cutout:8", only those that are set, in this order;
 * "" for none. Returns text. */
const char *job_input_augment_text(const struct job_augment *a, char text[JOB_AUGMENT_BYTES]);
/* Parses such a text, in which each change may occur once, in any order. Returns false if the text
 * is not valid.
 * */
bool job_input_augment_parse(const char *text, struct job_augment *out);

/* Returns NULL, or the problem with these values (static text). */
const char *job_input_normal_problem(const struct job_normal *n);
/* Returns the channel of the first number that differs, and sets *of to "mean" or "std". Returns -1
 * if all numbers are equal. If only one of the two has numbers, returns 0 and sets *of to
 * "mean". */
int job_input_normal_differ(const struct job_normal *a, const struct job_normal *b,
                            const char **of);

/* Writes the numbers as "0.5,0.25"; "none" for n = 0. Reading the text yields the same floats.
 * Returns text. */
const char *job_input_numbers_text(const float *value, int n, char text[JOB_NUMBERS_BYTES]);
/* Parses finite numbers with commas between them into out, and returns their count; 0: the text
 * is not valid, or has more than JOB_MAX_CHANNELS. */
int job_input_numbers_parse(const char *text, float out[JOB_MAX_CHANNELS]);

#endif
