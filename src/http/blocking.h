/* One request, waited for: for kldumpctl. Any thread. */
#pragma once

#include "base/buffer.h"
#include "http/transfer.h"

/* The body of *ret_result lies in *body (initialised by the caller), until that changes. On
 * failure the code and the problem are in `err`: ERROR_BAD_VALUE for a request that may not be carried, else as in
 * struct transfer_result. */
enum error_code blocking_request(const struct transfer_request *request, struct buffer *body,
                                 struct transfer_result *ret_result, struct error *err);
