/* base/flags_tensorflow.h - flags that users of TensorFlow 1 type: those of its mnist_replica.py
 * and of tf_cnn_benchmarks, and the names of tf.ConfigProto, except those that Weir has too.
 * docs/guide/tensorflow.md has the same table; a test compares them.
 * Owns: nothing. Threads: any. */
#ifndef BASE_FLAGS_TENSORFLOW_H
#define BASE_FLAGS_TENSORFLOW_H
#include "base/flags.h"

/* For flags_program.foreign. */
extern const struct flag_foreign flags_tensorflow[];

#endif
