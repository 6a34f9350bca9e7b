/* ps/model_name.h - the name of a network, in the JSON text that a worker brought.
 * Owns: nothing. Threads: values. Errors: none; a text without a name gives none. */
#ifndef PS_MODEL_NAME_H
#define PS_MODEL_NAME_H
#include "net/wire/status.h"

/* Copies the value of "name" in the text, which comes from the network and has at most
 * 256 KB. */
void ps_model_name(const char *text, char name[STATUS_MODEL_BYTES]);

#endif
