/* The one table through which everybody else uses this room. */
#pragma once

#include "core/server.h"

extern const struct server_operations sglang_operations;
