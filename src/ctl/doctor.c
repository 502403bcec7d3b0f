#include "ctl/doctor.h"

#include "base/memory.h"
#include "sys/dump_folder.h"
#include "sys/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void find_folder(struct doctor *doctor)
{
    doctor->directory = dump_folder_foresee(doctor->settings.directory, &doctor->nearest, &doctor->folder_problem);
    doctor->nearest_fd = open(doctor->nearest, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    if (doctor->nearest_fd < 0 && doctor->folder_problem == 0)
        doctor->folder_problem = errno;
}

void doctor_init(struct doctor *doctor, struct settings *settings, char **command, const struct doctor_rules *rules)
{
    *doctor = (struct doctor){.settings = *settings, .nearest_fd = -1, .rules = rules};
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
