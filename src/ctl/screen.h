/* The terminal as one screen that is drawn again in place: its own screen buffer, keys without Return, the old state
 * put back however it ends. One at a time in a process; one thread. */
#pragma once

#include "base/buffer.h"

#include <stdint.h>

enum screen_event {
    SCREEN_TIME,  /* the time is over */
    SCREEN_DRAW,  /* the size has changed, or we run again after Ctrl-Z: draw now */
    SCREEN_LEAVE, /* q, Ctrl-C, or a signal that ends */
};

/* Begins; `fd` is the terminal to draw on. Keys are read from standard input where that is a terminal. A signal that
 * ends us while screen_wait is not running puts the terminal back and ends the process at once, with status 0. */
void screen_open(int fd);

/* Draws the lines of `text` from the top, cut to the size of the screen; escape sequences take no room. */
void screen_draw(const char *text);

/* Columns that a line may have. */
unsigned screen_columns(void);

/* Waits up to `ms` for something to do. */
enum screen_event screen_wait(int64_t ms);

/* Puts the terminal back. */
void screen_close(void);
