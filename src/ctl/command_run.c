/* kldumpctl run: becomes kldump-run, the guard. */
#include "base/memory.h"
#include "ctl/command.h"
#include "sys/sibling.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    (void)out;
    (void)argc;
    char *path = sibling_path("kldump-run");
    if (path == NULL) {
        error_set(&err, ERROR_INTERNAL,
                  "kldump-run is neither beside kldumpctl nor in " KLDUMP_LIBEXECDIR "; install kldump again");
        return command_fail(command, &err);
    }
    argv[0] = path;
    output_restore_pipe_signal();
    execv(path, argv);
    error_set_errno(&err, ERROR_INTERNAL, errno, "%s cannot be executed", path);
    free(path);
    return command_fail(command, &err);
}

const struct command command_run = {
    .name = "run",
    .usage = "run [OPTIONS] -- CMD...",
    .summary = "guard CMD, a server's command, in the foreground",
    .help = "Examples:\n"
            "  kldumpctl run --name t --dir dumps --floor 20G -- \\\n"
            "      python3 -m sglang.launch_server --model-path M --port 30000\n"
            "  kldumpctl run --floor 5% --start-timeout 1h -- python3 -m sglang.launch_server ...\n"
            "  kldumpctl run --name p --kind plain -- python3 -m sglang.launch_server ...\n"
            "\n"
            "Starts the server with the settings that a hook dump needs, proves that the hooks\n"
            "fire in prefill and in decode, and stays until the server ends. From then on\n"
            "'status', 'dump', 'pause' and 'stop' work from any other terminal. The run is killed\n"
            "before the free space falls below the floor. Ctrl-C stops in order and seals a dump\n"
            "under way; a second Ctrl-C kills at once. With --kind plain the server is started as it is,\n"
            "guarded alike and never dumped.\n",
    .has_settings = true,
    .run = run,
};
