/* progress.h: what stands on the terminal, and when. */
#include "ctl/now.h"
#include "ctl/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static FILE *shown;
static int saved;

/* Standard error goes into a file from now on. */
static int setup(void **state)
{
    (void)state;
    shown = tmpfile();
    saved = dup(STDERR_FILENO);
    return shown != NULL && saved >= 0 && dup2(fileno(shown), STDERR_FILENO) >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    dup2(saved, STDERR_FILENO);
    close(saved);
    return fclose(shown);
}

/* What was written since the last look. */
static const char *look(void)
{
    static char text[256];
    static off_t from;
    ssize_t n = pread(fileno(shown), text, sizeof text - 1, from);
    text[n > 0 ? n : 0] = '\0';
    from += n > 0 ? n : 0;
    return text;
}

static void progress(void **state)
{
    struct progress line = {0};
    (void)state;
    progress_show(&line, "reading", 1, 4); /* too early for anybody to wait */
    progress_end(&line);
    assert_string_equal(look(), "");

    line = (struct progress){.begun = true, .begun_ms = now_ms() - PROGRESS_PATIENCE_MS};
    progress_show(&line, "reading", 1, 4);
    assert_string_equal(look(), "\r\033[Kreading: 1 of 4, 25 %");
    progress_show(&line, "reading", 1, 4);
    progress_show(&line, "reading", 0, 0); /* nothing to do is no progress */
    assert_string_equal(look(), "");
    progress_show(&line, "comparing", 250, 1000); /* the same percentage of something else */
    assert_string_equal(look(), "\r\033[Kcomparing: 250 of 1000, 25 %");
    progress_end(&line);
    assert_string_equal(look(), "\r\033[K");
    progress_end(&line);
    assert_string_equal(look(), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(progress, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
