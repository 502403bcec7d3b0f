#include "http/blocking.h"
#include "http/transfer_handle.h"

enum error_code blocking_request(const struct transfer_request *request, struct buffer *body,
                                 struct transfer_result *ret_result, struct error *err)
{
    struct transfer *transfer = NULL;
    struct transfer_result result;
    enum error_code code = transfer_new(request, &transfer, err);
    if (code != ERROR_NONE)
        return code;
    transfer_finish(transfer, curl_easy_perform(transfer_handle(transfer)), &result);
    buffer_clear(body);
    buffer_append(body, result.body, result.length);
    result.body = body->data;
    transfer_free(transfer);
    if (result.code != ERROR_NONE)
        return error_set(err, result.code, "%s", result.problem);
    *ret_result = result;
    return ERROR_NONE;
}
