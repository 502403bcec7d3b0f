/* The way LAUNCH_SPAWN of sys/launch.h: a child of ours that becomes the guard. Any thread. */
#pragma once

#include "sys/launch.h"

/* As launch_start. The child is ours to reap; its pidfd becomes readable at its end. */
enum error_code launch_spawn(const struct launch_request *request, struct launch_result *ret_result, struct error *err);
