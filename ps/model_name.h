/* ps/model_name.h - the name of a network, from the JSON text that a worker sent.
 * Owns: nothing. Threads: any. Errors: none; the name is empty if the text has none. */
#ifndef PS_MODEL_NAME_H
#define PS_MODEL_NAME_H
#include "net/wire/status.h"

/* Copies the value of "name" in the text, which was received from the network and has at most
 * 256 KB. */
void ps_model_name(const char *text, char name[STATUS_MODEL_BYTES]);

#endif
