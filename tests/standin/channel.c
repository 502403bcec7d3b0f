/* channel.c: see channel.h. */
#include "channel.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void channel_init(struct channel *channel, int fd)
{
    *channel = (struct channel){.fd = fd};
    text_init(&channel->pending);
}

bool channel_send(struct channel *channel, cJSON *message)
{
    char *line = cJSON_PrintUnformatted(message);
    cJSON_Delete(message);
    if (line == NULL)
        return false;
    size_t length = strlen(line), done = 0;
    line[length++] = '\n'; /* in the place of the terminator: not used as a string any more */
    while (done < length) {
        ssize_t sent = send(channel->fd, line + done, length - done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            break;
        done += (size_t)sent;
    }
    free(line);
    return done == length;
}

static cJSON *take_line(struct channel *channel)
{
    struct text *pending = &channel->pending;
    char *end = pending->length > 0 ? memchr(pending->data, '\n', pending->length) : NULL;
    if (end == NULL)
        return NULL;
    *end = '\0';
    cJSON *message = cJSON_Parse(pending->data);
    size_t used = (size_t)(end - pending->data) + 1;
    memmove(pending->data, pending->data + used, pending->length - used + 1);
    pending->length -= used;
    return message;
}

cJSON *channel_receive(struct channel *channel, bool wait)
{
    for (;;) {
        cJSON *message = take_line(channel);
        if (message != NULL || channel->closed)
            return message;
        char block[65536];
        ssize_t got = recv(channel->fd, block, sizeof block, wait ? 0 : MSG_DONTWAIT);
        if (got > 0) {
            text_bytes(&channel->pending, block, (size_t)got);
            continue;
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return NULL;
        channel->closed = true;
    }
}
