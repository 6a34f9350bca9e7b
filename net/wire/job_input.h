/* net/wire/job_input.h - what a job does with samples before the model reads them. All members do
 * the same, evaluation and prediction too. Threads: values. */
#ifndef NET_WIRE_JOB_INPUT_H
#define NET_WIRE_JOB_INPUT_H
#include <stddef.h>

enum { JOB_MAX_CHANNELS = 64, JOB_NUMBERS_BYTES = JOB_MAX_CHANNELS * 16 };

/* A number x of channel c becomes (x - mean[c]) / std[c], in float. */
struct job_normal {
    int n;                        /* channels of a sample; 0: numbers stay as they are */
    float mean[JOB_MAX_CHANNELS]; /* in the samples' unit: bytes are divided by 255 before */
    float std[JOB_MAX_CHANNELS];  /* likewise; above 0 */
};

/* What is changed at random in a training sample (worker/data/augment.h); pixels, 0: not that. */
struct job_augment {
    int flip;                /* 1: left becomes right */
    int shift, crop, cutout; /* up to JOB_MAX_AUGMENT */
};
enum { JOB_MAX_AUGMENT = 65535, JOB_AUGMENT_BYTES = 64 };

int job_input_augments(const struct job_augment *a); /* 1: anything */
/* "flip,shift:2,crop:4,cutout:8", some of them, in this order; "" for none. Returns text. */
const char *job_input_augment_text(const struct job_augment *a, char text[JOB_AUGMENT_BYTES]);
/* Such a text, each once at most, in any order; 0: it is none. */
int job_input_augment_parse(const char *text, struct job_augment *out);

/* NULL, or what of it cannot be (static text). */
const char *job_input_normal_problem(const struct job_normal *n);
/* The channel of the first number that differs; *of: "mean" or "std". -1: they are the same. Where
 * one has none: 0, of the mean. */
int job_input_normal_differ(const struct job_normal *a, const struct job_normal *b,
                            const char **of);

/* "0.5,0.25"; "none" for n = 0. Read again, they are the same floats. Returns text. */
const char *job_input_numbers_text(const float *value, int n, char text[JOB_NUMBERS_BYTES]);
/* How many finite numbers with commas between them the text is, written to out; 0: it is none of
 * that, or more than JOB_MAX_CHANNELS. */
int job_input_numbers_parse(const char *text, float out[JOB_MAX_CHANNELS]);

#endif
