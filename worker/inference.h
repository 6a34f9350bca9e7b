/* worker/inference.h - --evaluate and --predict: evaluates the test set with parameters that an
 * earlier training wrote, or writes predictions for it. Nothing is trained. Errors: of
 * set_up_inference, weights_read, predictions_*; logged. */
#ifndef WORKER_INFERENCE_H
#define WORKER_INFERENCE_H
#include "worker/worker.h"

enum status inference_run(struct worker *w);

#endif
