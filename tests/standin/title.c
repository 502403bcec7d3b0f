/* title.c: see title.h. */
#include "title.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

static char *room;
static size_t room_bytes;

void title_init(int argc, char **argv)
{
    room = argv[0];
    room_bytes = (size_t)(argv[argc - 1] - argv[0]) + strlen(argv[argc - 1]) + 1;
}

void title_set(const char *title)
{
    memset(room, 0, room_bytes);
    snprintf(room, room_bytes, "%s", title);
    title_set_comm(title);
}

void title_set_comm(const char *comm)
{
    prctl(PR_SET_NAME, comm, 0, 0, 0);
}
