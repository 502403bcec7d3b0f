/* Asks a control socket at a steady rate: request_load SOCKET CONNECTIONS RATE SECONDS METHOD [RUN...]
 *
 * Request k is due at k/RATE, of run k modulo their number, on connection k modulo CONNECTIONS, and is sent then
 * whether the one before it was answered or not; its latency counts from when it was due, so that an answer that was
 * late also counts for those that had to wait behind it. The answer must be no error and name the run. One line of JSON
 * tells. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MOST = 128, ROOM = 2 << 20, PATIENCE_S = 20 };

struct connection {
    char *input;
    size_t length;
};

static struct connection connections[CONNECTIONS_MOST];
static struct pollfd waits[CONNECTIONS_MOST];
static size_t connection_count, run_count, done, errors;
static uint64_t *latency_ns, begin_ns;
static double rate;
static char **runs;

static void fail(const char *what)
{
    fprintf(stderr, "request_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t due_ns(size_t k)
{
    return begin_ns + (uint64_t)((double)k * 1e9 / rate);
}

static void send_line(size_t i, const char *line)
{
    size_t length = strlen(line);
    if (send(waits[i].fd, line, length, MSG_NOSIGNAL) != (ssize_t)length)
        fail("send"); /* nothing is queued so deep that a line does not fit */
}

static void ask(size_t k, const char *method)
{
    char line[256], parameters[100] = "";
    if (run_count > 0)
        snprintf(parameters, sizeof parameters, "\"run\":\"%s\"", runs[k % run_count]);
    snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":%zu,\"method\":\"%s\",\"params\":{%s}}\n", k + 1, method,
             parameters);
    send_line(k % connection_count, line);
}

static void take_line(const char *line, size_t count)
{
    const char *id = strstr(line, "\"id\":");
    unsigned long k = id != NULL ? strtoul(id + 5, NULL, 10) : 0;
    if (k == 0) /* hello's */
        return;
    char name[100] = "\"result\":{";
    if (run_count > 0)
        snprintf(name, sizeof name, "\"name\":\"%s\"", runs[(k - 1) % run_count]);
    if (k > count || latency_ns[k - 1] != 0 || strstr(line, name) == NULL) {
        if (errors++ == 0)
            fprintf(stderr, "request_load: not the answer to %lu: %.300s\n", k, line);
    }
    if (k <= count)
        latency_ns[k - 1] = now_ns() - due_ns(k - 1);
    done++;
}

static void take(size_t i, size_t count)
{
    struct connection *c = &connections[i];
    ssize_t got = recv(waits[i].fd, c->input + c->length, ROOM - 1 - c->length, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        fail("the connection ended");
    if (got < 0)
        return;
    char *from = c->input, *end;
    c->length += (size_t)got;
    c->input[c->length] = '\0';
    while ((end = memchr(from, '\n', c->length - (size_t)(from - c->input))) != NULL) {
        *end = '\0';
        take_line(from, count);
        from = end + 1;
    }
    c->length -= (size_t)(from - c->input);
    memmove(c->input, from, c->length);
}

static void connect_all(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    for (size_t i = 0; i < connection_count; i++) {
        waits[i].fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        waits[i].events = POLLIN;
        connections[i].input = malloc(ROOM);
        if (waits[i].fd < 0 || connect(waits[i].fd, (struct sockaddr *)&address, sizeof address) != 0)
            fail(path);
        send_line(i, "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"hello\",\"params\":{\"version\":1}}\n");
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double share_ms(size_t count, double share)
{
    size_t i = (size_t)(share * (double)count);
    return (double)latency_ns[i < count ? i : count - 1] / 1e6;
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    connection_count = (size_t)atoi(argv[2]);
    rate = atof(argv[3]);
    size_t count = (size_t)(rate * atof(argv[4])), asked = 0;
    runs = argv + 6;
    run_count = (size_t)(argc - 6);
    if (connection_count == 0 || connection_count > CONNECTIONS_MOST || count == 0)
        return 2;
    latency_ns = calloc(count, sizeof *latency_ns);
    connect_all(argv[1]);
    begin_ns = now_ns();
    uint64_t end_ns = due_ns(count) + PATIENCE_S * 1000000000ull, now;
    while (done < count && (now = now_ns()) < end_ns) {
        while (asked < count && due_ns(asked) <= now)
            ask(asked++, argv[5]);
        uint64_t next_ns = asked < count ? due_ns(asked) : end_ns;
        uint64_t rest_ns = next_ns > now ? next_ns - now : 0;
        struct timespec rest = {.tv_sec = (time_t)(rest_ns / 1000000000u), .tv_nsec = (long)(rest_ns % 1000000000u)};
        if (ppoll(waits, connection_count, &rest, NULL) <= 0)
            continue;
        for (size_t i = 0; i < connection_count; i++)
            if (waits[i].revents != 0)
                take(i, count);
    }
    double seconds = (double)(now_ns() - begin_ns) / 1e9;
    qsort(latency_ns, count, sizeof *latency_ns, compare); /* one that was never answered counts as 0 and as an error */
    printf("{\"asked\": %zu, \"errors\": %zu, \"per_s\": %.1f, \"p50_ms\": %.3f, \"p90_ms\": %.3f, \"p99_ms\": %.3f, "
           "\"p999_ms\": %.3f, \"max_ms\": %.3f}\n",
           asked, errors + count - done, (double)done / seconds, share_ms(count, 0.5), share_ms(count, 0.9),
           share_ms(count, 0.99), share_ms(count, 0.999), share_ms(count, 1));
    return errors + count - done > 0;
}
