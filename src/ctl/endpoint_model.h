/* The config.json of the model that a server serves, where it lies on this machine. One thread. */
#pragma once

#include "sglang/generate.h"

/* Adds what it tells to `server`. Returns NULL, or why it could not be read, in words: the caller's. */
char *endpoint_model_read(struct generate_server *server);
