/* What /server_info tells about the server: its version, its graphs as resolved, its shape, and what that shape leaves
 * unproven. SGLang 0.5.10 to 0.5.23. Pure; any thread. */
#pragma once

#include "core/server.h"

struct json;

/* ERROR_FORMAT when it is not an object with a version or a member has another type than every release gives it. */
enum error_code info_read(const struct json *info, struct server_facts *ret_facts, struct error *err);
