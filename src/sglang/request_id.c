#include "sglang/request_id.h"
#include "base/text.h"

#include <string.h>

enum { MADE_UP_DIGITS = 32 };

enum request_id_kind request_id_kind(const char *request_id)
{
    if (text_starts(request_id, "HEALTH_CHECK"))
        return REQUEST_ID_HEALTH_PROBE;
    size_t digits = strspn(request_id, "0123456789abcdef");
    return digits == MADE_UP_DIGITS && request_id[digits] == '\0' ? REQUEST_ID_MADE_UP : REQUEST_ID_CLIENT;
}
