/* kldumpctl show: what is in a dump file, or in a folder of them. */
#include "ctl/command.h"
#include "ctl/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct inspect_options inspect = {0};
    const struct command_option options[] = {{.name = "json", .flag = &inspect.as_json},
                                             {.name = "verify", .flag = &inspect.verify},
                                             {.name = "npy", .value = &inspect.npy},
                                             {0}};
    struct command_operands operands;
    if (!command_parse(command, options, argc, argv, 1, &operands))
        return STATUS_USAGE;
    if (operands.count != 1)
        return command_usage_error(command, "name a dump file, or a folder of them");
    if (inspect.npy != NULL && strcmp(inspect.npy, "-") == 0 && inspect.as_json)
        return command_usage_error(command, "--json and the elements cannot both go to standard output");

    const char *path = operands.item[0];
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) {
        struct stat status;
        struct error err = ERROR_INIT;
        if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
            error_set_errno(&err, ERROR_FORBIDDEN, EACCES, "cannot open the folder '%.200s'", path);
            return command_fail(command, &err);
        }
    }
    if (fd >= 0) {
        int status = inspect.npy != NULL || inspect.verify
                         ? command_usage_error(command, "--npy and --verify take a file, and '%s' is a folder", path)
                         : inspect_folder(command, out, fd, &inspect);
        close(fd);
        return status;
    }
    /* A link that the user names is his; the reader itself follows none. */
    char *followed = realpath(path, NULL);
    int status = inspect_file(command, out, followed != NULL ? followed : path, &inspect);
    free(followed);
    return status;
}

const struct command command_show = {
    .name = "show",
    .usage = "show [--json] [--verify] [--npy OUT] FILE\nshow [--json] DIR",
    .summary = "show what is in a dump file, or in a folder of them",
    .help =
        "Examples:\n"
        "  kldumpctl show dumps/dec\n"
        "  kldumpctl show 'dumps/dec/step=0___rank=0___dump_index=17___name=....pt'\n"
        "  kldumpctl show --npy out.npy FILE && python3 -c 'import numpy; print(numpy.load(\"out.npy\"))'\n"
        "  kldumpctl show --json dumps/dec | jq -r 'select(.problem) | .file'\n"
        "\n"
        "FILE, as torch.save writes it: element type, shape, strides, storage, minimum, maximum, mean, RMS, NaN and\n"
        "infinite elements, the first elements, and what the dumper noted beside them. Of complex numbers both parts\n"
        "count. DIR: which observations exist in which steps and ranks, a row for each shape of each.\n"
        "Nothing in a file is executed; one that asks for that is refused and named.\n"
        "\n"
        "  --json           one JSON object (schema kldump.show/1); of a folder one for each file, a line each\n"
        "  --verify         compare the checksums of all that the file holds\n"
        "  --npy OUT        write the elements for numpy.load, in the place of OUT if it is there; '-' is standard\n"
        "                   output. Types that numpy does not have (bfloat16, float8) are written as their bits:\n"
        "                   torch.from_numpy(a.view('i2')).view(torch.bfloat16)\n"
        "\n"
        "Exit status: 0 shown, 2 usage, 4 a file that is empty, cut short or damaged, 5 a file that is refused: no\n"
        "torch file, a kind that is not read, or one that asks for code to be run; 87 no such file, 88 not allowed.\n",
    .run = run,
};
