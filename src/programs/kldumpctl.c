/* kldumpctl: everything a person types. */
#include "ctl/command.h"
#include "sys/file.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    struct output out;
    struct error err = ERROR_INIT;
    file_open_standard();
    output_ignore_pipe_signal();
    output_init(&out, STDOUT_FILENO);
    int status = commands_main(&out, argc, argv);
    if (output_flush(&out, &err) != ERROR_NONE)
        status = output_error(NULL, &err);
    output_fini(&out);
    return status;
}
