/* Happy path: keep the terminal's state, switch to the other screen buffer, draw, wait for a key, a signal or the time,
 * put everything back.
 * Failures: a signal that ends us while somebody is asked (put back in the handler: tcsetattr and write may be called
 * there); Ctrl-Z (put back, stop, begin again); a terminal that tells no size (80 x 24); one that goes away (a hang-up
 * signal, or the end of standard input: leave). */
#include "ctl/screen.h"
#include "ctl/now.h"

#include "ctl/output.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static const char enter[] = "\033[?1049h\033[?25l", leave[] = "\033[?25h\033[?1049l";
static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT};
enum { WATCHED = sizeof watched / sizeof watched[0] };

static struct {
    int fd;
    bool has_keys;
    struct termios before;
    struct sigaction old[WATCHED];
    unsigned rows, columns;
} screen;

static volatile sig_atomic_t waiting, leaving, drawing, stopping;

static void put_back(void)
{
    (void)!write(screen.fd, leave, sizeof leave - 1);
    if (screen.has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &screen.before);
}

static void take_terminal(void)
{
    if (screen.has_keys) {
        struct termios mode = screen.before;
        mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        mode.c_cc[VMIN] = 1;
        mode.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &mode);
    }
    output_write_all(screen.fd, enter, sizeof enter - 1);
}

static void on_signal(int number)
{
    int saved = errno;
    if (number == SIGWINCH || number == SIGCONT) {
        drawing = 1;
    } else if (number == SIGTSTP) {
        stopping = 1;
    } else if (waiting) {
        leaving = 1;
    } else {
        put_back();
        _exit(0);
    }
    errno = saved;
}

static void take_size(void)
{
    struct winsize size;
    screen.rows = 24;
    screen.columns = 80;
    if (ioctl(screen.fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
        screen.rows = size.ws_row;
        screen.columns = size.ws_col;
    }
}

void screen_open(int fd)
{
    screen.fd = fd;
    screen.has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen.before) == 0;
    waiting = leaving = drawing = stopping = 0;
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < WATCHED; i++) {
        sigaction(watched[i], NULL, &screen.old[i]);
        if (screen.old[i].sa_handler != SIG_IGN) /* nohup stays nohup */
            sigaction(watched[i], &action, NULL);
    }
    take_size();
    take_terminal();
}

void screen_close(void)
{
    for (size_t i = 0; i < WATCHED; i++)
        sigaction(watched[i], &screen.old[i], NULL);
    put_back();
}

/* Bytes of an escape sequence at `text` ("\033[...m"), 0 where there is none. */
static size_t escape_length(const char *text)
{
    if (text[0] != '\033' || text[1] != '[')
        return 0;
    size_t length = 2;
    while (text[length] != '\0' && (text[length] < '@' || text[length] > '~'))
        length++;
    return text[length] != '\0' ? length + 1 : 0;
}

static unsigned columns_of(const char *line, size_t length)
{
    unsigned columns = 0;
    for (size_t i = 0; i < length;) {
        size_t escape = escape_length(line + i);
        columns += escape == 0 && ((unsigned char)line[i] & 0xc0) != 0x80;
        i += escape > 0 ? escape : 1;
    }
    return columns;
}

/* Appends a line of `length` bytes, cut to the columns, with a mark; sequences that come after the cut are kept, as
 * they end a colour. */
static void add_line(struct buffer *out, const char *line, size_t length)
{
    unsigned used = 0;
    bool cut = columns_of(line, length) > screen.columns;
    unsigned most = cut ? screen.columns - 1 : screen.columns;
    for (size_t i = 0; i < length;) {
        size_t escape = escape_length(line + i);
        bool begins = escape == 0 && ((unsigned char)line[i] & 0xc0) != 0x80;
        used += begins ? 1 : 0;
        if (escape > 0 || used <= most)
            buffer_append(out, line + i, escape > 0 ? escape : 1);
        else if (begins && used == screen.columns)
            buffer_text(out, "~");
        i += escape > 0 ? escape : 1;
    }
    buffer_text(out, "\033[K");
}

void screen_draw(const char *text)
{
    struct buffer out;
    buffer_init(&out);
    take_size();
    buffer_text(&out, "\033[H");
    for (unsigned row = 0; row < screen.rows && *text != '\0'; row++) {
        size_t length = strcspn(text, "\n");
        if (row > 0)
            buffer_text(&out, "\r\n");
        add_line(&out, text, length);
        text += length + (text[length] == '\n');
    }
    buffer_text(&out, "\033[J");
    if (!output_write_all(screen.fd, out.data, out.length))
        leaving = 1;
    buffer_fini(&out);
}

unsigned screen_columns(void)
{
    take_size();
    return screen.columns;
}

/* Ctrl-Z: the shell gets its terminal back until we go on. */
static void stop_here(void)
{
    stopping = 0;
    put_back();
    raise(SIGSTOP);
    take_terminal();
    drawing = 1;
}

/* A key; true when it says to leave. */
static bool take_key(void)
{
    char key;
    ssize_t n = read(STDIN_FILENO, &key, 1);
    return n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN) || (n == 1 && (key == 'q' || key == 'Q'));
}

static enum screen_event wait_blocked(int64_t end_ms, const sigset_t *open_mask)
{
    for (;;) {
        if (leaving)
            return SCREEN_LEAVE;
        if (stopping)
            stop_here();
        if (drawing) {
            drawing = 0;
            return SCREEN_DRAW;
        }
        int64_t left = end_ms - now_ms();
        if (left <= 0)
            return SCREEN_TIME;
        struct timespec limit = {left / 1000, left % 1000 * 1000000};
        struct pollfd keys = {.fd = screen.has_keys ? STDIN_FILENO : -1, .events = POLLIN};
        if (ppoll(&keys, 1, &limit, open_mask) > 0 && take_key())
            return SCREEN_LEAVE;
    }
}

enum screen_event screen_wait(int64_t ms)
{
    sigset_t block, before;
    sigemptyset(&block);
    for (size_t i = 0; i < WATCHED; i++)
        sigaddset(&block, watched[i]);
    /* blocked but in ppoll: no signal can come between the look at the flags and the wait */
    sigprocmask(SIG_BLOCK, &block, &before);
    waiting = 1;
    enum screen_event event = wait_blocked(now_ms() + ms, &before);
    waiting = 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return event;
}
