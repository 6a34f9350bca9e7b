/* worker/data/data_images.h - a folder that has a folder of pictures for each class: PNG and JPEG,
 * decoded into memory. Classes are numbered in the order of their folders' names, and the pictures
 * of a class are sorted by file name. Palettes become RGB, values of 16 bits become 8 bits, and the
 * alpha channel is dropped.
 * Threads: none of its own.
 * Errors:  ST_NOT_FOUND, ST_INVALID, ST_CORRUPT, ST_UNSUPPORTED (built without the library),
 *          ST_MISMATCH (pictures of different sizes), ST_NOMEM; the log line names the file. All
 *          files are read even after an error: the log names the first 20 bad files, and the
 *          number of all bad files. */
#ifndef WORKER_DATA_DATA_IMAGES_H
#define WORKER_DATA_DATA_IMAGES_H
#include "base/bar.h"
#include "worker/data/data_array.h"

struct data_images {
    struct data_array samples; /* (n, C, H, W) of DATA_U8, unpacked */
    struct data_array labels;  /* (n) of DATA_I32, unpacked; n_dims 0: there are none */
    char *classes;             /* names of the folders, a list as in data_words.h, malloc'd */
    /* Path of each picture within dir, each followed by a 0, malloc'd; NULL: not kept */
    char *names;
};
/* Reads the folder. to_predict: the pictures may also be in dir itself, without labels, and their
 * names are kept. */
enum status data_images_read(const char *dir, int to_predict, enum progress_style progress,
                             struct data_images *out);

/* Result of a decoder: channels (1 or 3), height, width; pixels as C x H x W. */
struct data_images_picture {
    int64_t dim[3];
    uint8_t *pixels; /* malloc'd */
};
enum status data_png_decode(const uint8_t *bytes, uint64_t n, const char *label,
                            struct data_images_picture *out);
enum status data_jpeg_decode(const uint8_t *bytes, uint64_t n, const char *label,
                             struct data_images_picture *out);
/* Allocates rows of H x W x C values. ST_CORRUPT: that size is not allowed, or a file of n bytes
 * cannot contain it; ST_NOMEM. Logged. */
enum status data_images_picture_alloc(const char *label, uint64_t n, const int64_t dim[3],
                                      uint8_t **rows);
/* Converts these rows to a picture, and frees them. */
enum status data_images_picture_turn(const char *label, const int64_t dim[3], uint8_t *rows,
                                     struct data_images_picture *out);

#endif
