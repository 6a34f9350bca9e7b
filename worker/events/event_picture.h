/* worker/events/event_picture.h - samples side by side in one picture, each in a frame, green where
 * the network is right and red where it is wrong, with the class it names below, and, where it is
 * wrong, behind a stroke the label: 7/9. Small samples are enlarged, large ones lose rows and
 * columns, both by whole factors. One channel is gray, three are red, green, blue; of any other
 * number the first is seen.
 * Owns:    the pixels. Threads: one.
 * Errors:  ST_NOMEM (not logged). */
#ifndef WORKER_EVENTS_EVENT_PICTURE_H
#define WORKER_EVENTS_EVENT_PICTURE_H
#include "base/shape.h"
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct event_picture;
/* Room for n samples of a shape (C,H,W). ST_UNSUPPORTED: it is no picture, but one row or column.
 */
enum status event_picture_create(const struct shape *sample, int n, struct event_picture **out);
void event_picture_destroy(struct event_picture *p); /* NULL is fine */
/* The k-th; pixels (C,H,W), 0 to 1; where any is outside, from the least to the largest. named,
 * label: below 0: not known. */
void event_picture_set(struct event_picture *p, int k, const float *pixels, int named, int label);
int event_picture_width(const struct event_picture *p);
int event_picture_height(const struct event_picture *p);
/* As PNG, malloc'd. */
enum status event_picture_png(const struct event_picture *p, uint8_t **data, size_t *n);

#endif
