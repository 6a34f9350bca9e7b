/* worker/inference.h - --evaluate and --predict: evaluates the test set with parameters from an
 * earlier training, or writes predictions for that set. Nothing is trained. Errors: of
 * set_up_inference, weights_read, predictions_*; logged. */
#ifndef WORKER_INFERENCE_H
#define WORKER_INFERENCE_H
#include "worker/worker.h"

enum status inference_run(struct worker *w);

#endif
