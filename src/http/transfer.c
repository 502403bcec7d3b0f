#include "config.h"

#include "base/memory.h"
#include "base/text.h"
#include "http/transfer_handle.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct transfer {
    CURL *easy;
    struct curl_slist *headers;
    struct buffer body;
    size_t body_max_bytes;
    bool too_large;
    bool (*wanted)(void *user);
    void *user;
    char error_text[CURL_ERROR_SIZE];
    uint64_t total_timeout_ms;
};

static void global_init(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static bool is_numeric_address(const char *host)
{
    unsigned char address[16];
    char inner[64];
    size_t length = strlen(host);
    if (host[0] != '[')
        return inet_pton(AF_INET, host, address) == 1;
    if (length < 3 || length >= sizeof inner || host[length - 1] != ']')
        return false;
    memcpy(inner, host + 1, length - 2);
    inner[length - 2] = '\0';
    return inet_pton(AF_INET6, inner, address) == 1;
}

static enum error_code check_parts(CURLU *parts, const char *url, struct error *err)
{
    char *scheme = NULL, *host = NULL, *user = NULL;
    enum error_code code = ERROR_NONE;
    if (curl_url_set(parts, CURLUPART_URL, url, CURLU_DISALLOW_USER) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_OK)
        code = error_set(err, ERROR_BAD_VALUE, "the address of the server is not of the form http://ADDRESS:PORT/PATH");
    else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)
        code =
            error_set(err, ERROR_BAD_VALUE, "scheme '%.20s' of the server's address; expected http or https", scheme);
    else if (!is_numeric_address(host))
        code =
            error_set(err, ERROR_BAD_VALUE, "'%.100s' is not a numeric address; expected one such as 127.0.0.1", host);
    curl_free(scheme);
    curl_free(host);
    curl_free(user);
    return code;
}

static enum error_code check_request(const struct transfer_request *request, struct error *err)
{
    CURLU *parts = curl_url();
    if (parts == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory");
    enum error_code code = check_parts(parts, request->url, err);
    curl_url_cleanup(parts);
    if (code != ERROR_NONE)
        return code;
    if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "POST") != 0)
        return error_set(err, ERROR_BAD_VALUE, "method '%.20s'; expected GET or POST", request->method);
    if (request->body_max_bytes == 0 || request->body_max_bytes > TRANSFER_BODY_MAX)
        return error_set(err, ERROR_BAD_VALUE, "the limit of an answer's body must be 1 to %d bytes",
                         TRANSFER_BODY_MAX);
    if (request->connect_timeout_ms == 0 || request->total_timeout_ms == 0 || request->connect_timeout_ms > INT32_MAX ||
        request->total_timeout_ms > INT32_MAX)
        return error_set(err, ERROR_BAD_VALUE, "a time limit must be 1 to %d ms", INT32_MAX);
    /* the key itself is never shown */
    for (const char *c = request->key != NULL ? request->key : ""; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return error_set(err, ERROR_BAD_VALUE, "the server's key holds a control character");
    return ERROR_NONE;
}

static size_t take_body(char *data, size_t size, size_t count, void *user)
{
    struct transfer *transfer = user;
    size_t length = size * count;
    if (length > transfer->body_max_bytes - transfer->body.length) {
        transfer->too_large = true;
        return 0;
    }
    buffer_append(&transfer->body, data, length);
    return length;
}

static int ask_wanted(void *user, curl_off_t down_total, curl_off_t down, curl_off_t up_total, curl_off_t up)
{
    const struct transfer *transfer = user;
    (void)down_total;
    (void)down;
    (void)up_total;
    (void)up;
    return transfer->wanted(transfer->user) ? 0 : 1;
}

static void add_header(struct transfer *transfer, const char *text)
{
    struct curl_slist *longer = curl_slist_append(transfer->headers, text);
    if (longer != NULL)
        transfer->headers = longer;
}

static void add_headers(struct transfer *transfer, const struct transfer_request *request)
{
    add_header(transfer, "Accept: */*");
    add_header(transfer, "Expect:"); /* no round trip before a long body */
    if (request->body != NULL)
        add_header(transfer, "Content-Type: application/json");
    if (request->key != NULL) {
        char *text = memory_format("Authorization: Bearer %s", request->key);
        add_header(transfer, text);
        explicit_bzero(text, strlen(text));
        free(text);
    }
    curl_easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, transfer->headers);
}

static void set_options(struct transfer *transfer, const struct transfer_request *request)
{
    CURL *easy = transfer->easy;
    curl_easy_setopt(easy, CURLOPT_URL, request->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_HTTP09_ALLOWED, 0L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* also switches off the http_proxy variables */
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L); /* see transfer.h */
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "kldump/" PACKAGE_VERSION);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)request->connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)request->total_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)request->body_max_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->error_text);
    if (request->wanted != NULL) {
        curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
        curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, ask_wanted);
        curl_easy_setopt(easy, CURLOPT_XFERINFODATA, transfer);
    }
    if (strcmp(request->method, "POST") == 0) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                         (curl_off_t)(request->body != NULL ? request->body_length : 0));
        curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, request->body != NULL ? request->body : "");
    }
    add_headers(transfer, request);
}

enum error_code transfer_new(const struct transfer_request *request, struct transfer **ret_transfer, struct error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, global_init);
    enum error_code code = check_request(request, err);
    if (code != ERROR_NONE)
        return code;
    struct transfer *transfer = memory_new(sizeof *transfer);
    transfer->easy = curl_easy_init();
    if (transfer->easy == NULL) {
        free(transfer);
        return error_set(err, ERROR_MEMORY, "libcurl gives no handle");
    }
    buffer_init(&transfer->body);
    transfer->body_max_bytes = request->body_max_bytes;
    transfer->wanted = request->wanted;
    transfer->user = request->user;
    transfer->total_timeout_ms = request->total_timeout_ms;
    set_options(transfer, request);
    *ret_transfer = transfer;
    return ERROR_NONE;
}

void transfer_free(struct transfer *transfer)
{
    if (transfer == NULL)
        return;
    curl_easy_cleanup(transfer->easy);
    for (struct curl_slist *h = transfer->headers; h != NULL; h = h->next)
        explicit_bzero(h->data, strlen(h->data));
    curl_slist_free_all(transfer->headers);
    buffer_fini(&transfer->body);
    free(transfer);
}

CURL *transfer_handle(struct transfer *transfer)
{
    return transfer->easy;
}

/* libcurl's many codes as the few that callers act on. */
static enum error_code error_of(const struct transfer *transfer, CURLcode how)
{
    if (transfer->too_large || how == CURLE_FILESIZE_EXCEEDED)
        return ERROR_TOO_LARGE;
    switch (how) {
    case CURLE_OK:
        return ERROR_NONE;
    case CURLE_OPERATION_TIMEDOUT:
        return ERROR_TIMEOUT;
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL: /* an answer without a status line */
    case CURLE_BAD_CONTENT_ENCODING:
        return ERROR_FORMAT;
    case CURLE_ABORTED_BY_CALLBACK:
        return ERROR_INTERRUPTED;
    case CURLE_OUT_OF_MEMORY:
        return ERROR_MEMORY;
    default:
        return ERROR_UNREACHABLE;
    }
}

void transfer_finish(struct transfer *transfer, CURLcode how, struct transfer_result *ret_result)
{
    struct transfer_result result = {.code = error_of(transfer, how), .body = ""};
    const char *text = transfer->error_text[0] != '\0' ? transfer->error_text : curl_easy_strerror(how);
    if (result.code == ERROR_NONE) {
        long status = 0;
        curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
        result.status = (int)status;
        result.body = transfer->body.data;
        result.length = transfer->body.length;
    } else if (result.code == ERROR_TIMEOUT) {
        snprintf(result.problem, sizeof result.problem, "no whole answer within %llu ms",
                 (unsigned long long)transfer->total_timeout_ms);
    } else if (result.code == ERROR_TOO_LARGE) {
        snprintf(result.problem, sizeof result.problem, "the answer is larger than %zu bytes",
                 transfer->body_max_bytes);
    } else {
        text_clean(text, strlen(text), result.problem, sizeof result.problem);
    }
    *ret_result = result;
}
