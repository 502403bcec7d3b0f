#include "ctl/interrupt.h"

#include "sys/process.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WATCHED = 3 };
static const int watched[WATCHED] = {SIGINT, SIGTERM, SIGHUP};

static struct sigaction before[WATCHED];
static volatile sig_atomic_t came;
static const char *volatile words;

static void note(int number)
{
    if (came == 0)
        came = number;
    else if (words != NULL) {
        (void)!write(STDERR_FILENO, words, strlen(words));
        _exit(PROCESS_SIGNALED + number);
    }
}

void interrupt_watch(const char *last_words)
{
    struct sigaction action = {.sa_handler = note};
    sigemptyset(&action.sa_mask);
    words = last_words;
    for (size_t i = 0; i < WATCHED; i++) {
        sigaction(watched[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(watched[i], &action, NULL);
    }
}

int interrupt_number(void)
{
    return came;
}

void interrupt_unwatch(void)
{
    for (size_t i = 0; i < WATCHED; i++)
        sigaction(watched[i], &before[i], NULL);
}

_Noreturn void interrupt_end(int number)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    fflush(NULL);
    sigaction(number, &action, NULL);
    raise(number);
    _exit(PROCESS_SIGNALED + number);
}
