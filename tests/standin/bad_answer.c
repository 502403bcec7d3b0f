/* bad_answer.c: see bad_answer.h. */
#include "bad_answer.h"

#include <stdio.h>
#include <string.h>

#include "faults.h"

enum { HUGE_BYTES = 48 << 20, DEEP = 100000 };

static _Atomic bool dumping;

void bad_answer_dumping(bool on)
{
    dumping = on;
}

static void text(const struct http_request *request, struct http_response *response)
{
    (void)request;
    text_string(&response->body, "<html><body><h1>It works!</h1></body></html>");
}

static void empty(const struct http_request *request, struct http_response *response)
{
    (void)request;
    (void)response;
}

static void binary(const struct http_request *request, struct http_response *response)
{
    (void)request;
    for (int i = 0; i < 4096; i++)
        text_byte(&response->body, (unsigned char)(i * 7));
}

static void deep(const struct http_request *request, struct http_response *response)
{
    (void)request;
    text_repeat(&response->body, '[', DEEP);
    text_repeat(&response->body, ']', DEEP);
}

static void huge(const struct http_request *request, struct http_response *response)
{
    (void)request;
    text_string(&response->body, "{\"padding\":\"");
    text_repeat(&response->body, 'x', HUGE_BYTES);
    text_string(&response->body, "\"}");
}

static void status(const struct http_request *request, struct http_response *response)
{
    (void)request;
    response->status = 500;
    text_string(&response->body, "Internal Server Error");
}

/* To itself: whoever follows is led in a circle. */
static void redirect(const struct http_request *request, struct http_response *response)
{
    response->status = 307;
    snprintf(response->header, sizeof response->header, "location: http://%.200s%.200s", request->host, request->path);
}

static void slow(const struct http_request *request, struct http_response *response)
{
    (void)request;
    response->manner = HTTP_SLOW;
    text_string(&response->body, "{\"slow\":true}");
    text_repeat(&response->body, ' ', 1000);
}

static void endless(const struct http_request *request, struct http_response *response)
{
    (void)request;
    response->manner = HTTP_ENDLESS;
    for (int i = 0; i < 8192; i++) /* chunks of 64 KiB: any limit is soon reached */
        text_string(&response->body, "[1,2,3],");
}

static void cut(const struct http_request *request, struct http_response *response)
{
    (void)request;
    response->manner = HTTP_CUT;
    text_string(&response->body, "{\"version\":\"0.5.23\",\"internal_states\":[]}");
}

/* Under 200, as a layer in front of the server words it. */
static void error_under_200(const struct http_request *request, struct http_response *response)
{
    (void)request;
    text_string(&response->body, "{\"error\":{\"message\":\"Out of memory\"}}");
}

static void close_connection(const struct http_request *request, struct http_response *response)
{
    (void)request;
    response->manner = HTTP_CLOSE;
}

static const struct {
    const char *name;
    http_handler *give;
} KINDS[] = {{"text", text},
             {"empty", empty},
             {"binary", binary},
             {"deep", deep},
             {"huge", huge},
             {"status", status},
             {"slow", slow},
             {"redirect", redirect},
             {"endless", endless},
             {"cut", cut},
             {"error", error_under_200},
             {"close", close_connection}};

/* "" always, "dumping", or "logprobs": requests that ask for them, which neither warm-up nor probe does. */
static bool is_time(const char *when, const struct http_request *request)
{
    if (strcmp(when, "logprobs") == 0)
        return request->body.data != NULL && strstr(request->body.data, "\"return_logprob\"") != NULL;
    return when[0] == '\0' || dumping;
}

bool bad_answer_give(const struct http_request *request, bool up, struct http_response *response)
{
    char kind[32], path[128], when[32] = "";
    if (sscanf(faults_value(FAULTS_BAD_ANSWER), "%31[^:]:%127[^:]:%31s", kind, path, when) < 2)
        return false;
    if (strcmp(request->path, path) != 0 || (!up && strcmp(path, "/health") != 0) || !is_time(when, request))
        return false;
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (strcmp(KINDS[i].name, kind) != 0)
            continue;
        response->status = 200;
        response->content_type = "application/json";
        KINDS[i].give(request, response);
        return true;
    }
    return false;
}
