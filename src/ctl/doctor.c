#include "ctl/doctor.h"

#include "base/memory.h"
#include "sys/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *absolute(const char *path)
{
    if (path[0] == '/')
        return memory_copy(path);
    char *here = getcwd(NULL, 0);
    char *full = memory_format("%s/%s", here != NULL ? here : "", path);
    free(here);
    return full;
}

/* The nearest folder above what is there, and the path that the folder would have once it is made. */
static void find_folder(struct doctor *doctor)
{
    struct stat status;
    char *path = absolute(doctor->settings.directory);
    char *rest = memory_copy("");
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    while ((doctor->nearest = realpath(path, NULL)) == NULL) {
        int problem = errno;
        if (problem == ENOENT && lstat(path, &status) == 0)
            problem = ELOOP; /* a link that leads nowhere: it can be neither entered nor made */
        if (doctor->folder_problem == 0 || problem != ENOENT)
            doctor->folder_problem = problem;
        char *slash = strrchr(path, '/');
        if (slash == NULL || path[1] == '\0')
            break;
        char *longer = memory_format("%s%s", slash, rest);
        free(rest);
        rest = longer;
        slash[slash == path ? 1 : 0] = '\0';
    }
    if (doctor->nearest == NULL)
        doctor->nearest = memory_copy("/");
    doctor->directory = memory_format("%s%s", strcmp(doctor->nearest, "/") == 0 ? "" : doctor->nearest, rest);
    if (doctor->directory[0] == '\0') {
        free(doctor->directory);
        doctor->directory = memory_copy("/");
    }
    doctor->nearest_fd = open(doctor->nearest, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    if (doctor->nearest_fd < 0 && doctor->folder_problem == 0)
        doctor->folder_problem = errno;
    free(path);
    free(rest);
}

void doctor_init(struct doctor *doctor, struct settings *settings, char **command)
{
    *doctor = (struct doctor){.settings = *settings, .nearest_fd = -1};
    *settings = (struct settings){0};
    list_add_all(&doctor->environment, environ);
    if (command != NULL)
        list_add_all(&doctor->given, command);
    find_folder(doctor);
    doctor->runtime = runtime_path();
    char *run = runtime_run_folder(doctor->runtime, doctor->settings.name);
    doctor->temporary = memory_format("%s/t", run);
    free(run);
}

void doctor_fini(struct doctor *doctor)
{
    settings_fini(&doctor->settings);
    server_command_fini(&doctor->command);
    list_fini(&doctor->environment);
    list_fini(&doctor->given);
    list_fini(&doctor->added);
    list_fini(&doctor->notes);
    if (doctor->nearest_fd >= 0)
        close(doctor->nearest_fd);
    free(doctor->directory);
    free(doctor->nearest);
    free(doctor->runtime);
    free(doctor->temporary);
}

void doctor_say(struct doctor_finding *finding, enum doctor_result result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->value, sizeof finding->value, format, arguments);
    va_end(arguments);
    finding->result = result;
    finding->advice[0] = '\0';
}

void doctor_advise(struct doctor_finding *finding, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->advice, sizeof finding->advice, format, arguments);
    va_end(arguments);
}

void doctor_say_error(struct doctor_finding *finding, enum doctor_result result, const struct error *err)
{
    const char *last = NULL;
    for (const char *found = err->message; (found = strstr(found, "; ")) != NULL; found += 2)
        last = found;
    if (last == NULL) {
        doctor_say(finding, result, "%s", err->message);
        return;
    }
    doctor_say(finding, result, "%.*s", (int)(last - err->message), err->message);
    doctor_advise(finding, "%s", last + 2);
}
