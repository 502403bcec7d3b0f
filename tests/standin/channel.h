/* channel.h: JSON objects, one a line, between two processes over a stream socket. */
#ifndef KLDUMP_STANDIN_CHANNEL_H
#define KLDUMP_STANDIN_CHANNEL_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "text.h"

struct channel {
    int fd;
    struct text pending; /* bytes read beyond the last whole line */
    bool closed;         /* the other side is gone */
};

void channel_init(struct channel *channel, int fd);

/* Sends and deletes `message`. False when the other side is gone (no signal). */
bool channel_send(struct channel *channel, cJSON *message);

/* The next object; waits for it when `wait`. NULL: none now, or the other side is gone (then `closed` is set). */
cJSON *channel_receive(struct channel *channel, bool wait);

#endif
