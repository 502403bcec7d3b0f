/* A request under way: for the drivers of this folder alone. */
#pragma once

#include "base/buffer.h"
#include "http/transfer.h"

#include <curl/curl.h>

struct transfer;

/* Copies all of *request. ERROR_BAD_VALUE when the request is not one this room may carry. */
enum error_code transfer_new(const struct transfer_request *request, struct transfer **ret_transfer, struct error *err);
void transfer_free(struct transfer *transfer); /* not while its handle is in a multi handle */

CURL *transfer_handle(struct transfer *transfer);

/* The result once libcurl has said how it ended; body is borrowed from the transfer. */
void transfer_finish(struct transfer *transfer, CURLcode how, struct transfer_result *ret_result);
