/* What a request id (rid) says about who sent the request (SGLang 0.5.10 to 0.5.23, http_server.py). Pure; any thread.
 */
#pragma once

enum request_id_kind {
    REQUEST_ID_CLIENT,       /* somebody chose it */
    REQUEST_ID_HEALTH_PROBE, /* /health with generation: HEALTH_CHECK_... */
    REQUEST_ID_MADE_UP, /* 32 hexadecimal digits: the server made it for a request without one, its own warm-up too */
};

enum request_id_kind request_id_kind(const char *request_id);
