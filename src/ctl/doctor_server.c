/* CMD: what it is, its Python, its SGLang, what contradicts dumping, its port. The same functions as the guard's. */
#include "base/text.h"
#include "ctl/capture.h"
#include "ctl/doctor.h"
#include "ctl/spawn.h"
#include "sglang/sglang.h"
#include "sys/listener.h"

#include <stdlib.h>
#include <string.h>

/* The whole command stays below 3 s; the guard itself has more patience. */
static const uint64_t python_limit_ms = 500, version_limit_ms = 2000;

static const struct server_operations *const server = &sglang_operations;

void doctor_server_command(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct error err = ERROR_INIT;
    char *path = NULL;
    if (doctor->given.count == 0)
        return;
    if (server->read_command(&doctor->given, &doctor->environment, &doctor->command, &err) != ERROR_NONE) {
        doctor_say_error(ret_finding, DOCTOR_FAIL, &err);
        if (ret_finding->advice[0] == '\0')
            doctor_advise(ret_finding, "correct that argument of CMD");
        return;
    }
    if (spawn_find(doctor->given.items[0], &path, &err) != ERROR_NONE) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s", err.message);
        doctor_advise(ret_finding, "write after -- exactly what you would type to start the server");
        return;
    }
    doctor->is_command = true;
    if (doctor->command.is_wrapper) {
        doctor_say(ret_finding, DOCTOR_WARN, "%s, a wrapper: its SGLang cannot be asked and nothing can be appended",
                   path);
        doctor_advise(ret_finding, "it must hand $KLDUMP_SGLANG_ARGS to the server; or give the server's own command");
    } else {
        doctor_say(ret_finding, DOCTOR_PASS, "%s, an SGLang server", path);
    }
    free(path);
}

/* The last line of what a program printed, made safe; "" when it printed nothing. */
static const char *last_line(const char *text, char *line, size_t size)
{
    size_t end = strlen(text);
    while (end > 0 && strchr("\r\n ", text[end - 1]) != NULL)
        end--;
    size_t start = end;
    while (start > 0 && text[start - 1] != '\n')
        start--;
    return text_clean(text + start, end - start, line, size);
}

/* What it says about itself, in *line; false where it says nothing of use. */
static bool ask_python(const struct doctor *doctor, char *path, char *line, size_t size)
{
    char *argv[] = {path, (char *)"--version", NULL};
    struct capture capture;
    if (capture_run(argv, list_vector((struct list *)&doctor->environment), python_limit_ms, &capture, NULL) !=
            ERROR_NONE ||
        capture.status != 0)
        return false;
    last_line(capture.output, line, size);
    return line[0] != '\0';
}

void doctor_server_python(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct error err = ERROR_INIT;
    char *path = NULL, line[200];
    if (!doctor->is_command || doctor->command.interpreter == NULL)
        return;
    if (spawn_find(doctor->command.interpreter, &path, &err) != ERROR_NONE) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s", err.message);
        doctor_advise(ret_finding, "name the Python of the environment in which SGLang is installed");
    } else if (doctor->command.is_script) {
        doctor_say(ret_finding, DOCTOR_PASS, "the one that %s names", path);
    } else if (ask_python(doctor, path, line, sizeof line)) {
        doctor_say(ret_finding, DOCTOR_PASS, "%s, %s", path, line);
    } else {
        doctor_say(ret_finding, DOCTOR_WARN, "%s does not tell its version", path);
        doctor_advise(ret_finding, "name the Python itself, unless it is meant to be started through this program");
    }
    free(path);
}

/* What the guard would launch; the arguments that are added and the notes are kept. */
static void prepare(struct doctor *doctor)
{
    struct list argv = {0}, environment = {0};
    struct server_launch launch = {doctor->directory, "kldump-idle", doctor->temporary,
                                   doctor->settings.kind == SETTINGS_KIND_PLAIN};
    list_add_all(&argv, doctor->given.items);
    list_add_all(&environment, list_vector(&doctor->environment));
    doctor->prepared = server->prepare(&doctor->command, doctor->version, &launch, &argv, &environment, &doctor->notes,
                                       &doctor->prepare_problem);
    for (size_t i = doctor->given.count; i < argv.count; i++)
        list_add(&doctor->added, argv.items[i]);
    list_fini(&argv);
    list_fini(&environment);
}

/* What the interpreter says; false after *ret_finding was filled. */
static bool ask_version(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct list argv = {0};
    struct error err = ERROR_INIT;
    struct capture capture = {0};
    char line[200];
    server->version_query(&doctor->command, &argv);
    if (argv.count == 0)
        return true; /* a wrapper */
    enum error_code code =
        capture_run(list_vector(&argv), list_vector(&doctor->environment), version_limit_ms, &capture, &err);
    list_fini(&argv);
    size_t length = strcspn(capture.output, "\r\n");
    if (code == ERROR_NONE && capture.status == 0 && length > 0) {
        text_clean(capture.output, length, doctor->version, sizeof doctor->version);
        doctor->has_version = true;
        return true;
    }
    if (code == ERROR_NONE && capture.timed_out) {
        doctor_say(ret_finding, DOCTOR_WARN, "Python did not tell the version within %u s",
                   (unsigned)(version_limit_ms / 1000));
        doctor_advise(ret_finding, "try again: the first start from a cold disk is slow");
        return false;
    }
    doctor_say(ret_finding, DOCTOR_FAIL, "not found in that Python: %s",
               code != ERROR_NONE ? err.message : last_line(capture.error_text, line, sizeof line));
    doctor_advise(ret_finding, "name the Python of the environment in which SGLang is installed, or install it there: "
                               "pip install sglang");
    return false;
}

void doctor_server_version(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    if (!doctor->is_command || doctor->command.is_wrapper) {
        if (doctor->is_command)
            prepare(doctor);
        return;
    }
    bool told = ask_version(doctor, ret_finding);
    prepare(doctor);
    if (!told)
        return;
    if (doctor->prepared == ERROR_VERSION) {
        doctor_say_error(ret_finding, DOCTOR_FAIL, &doctor->prepare_problem);
        return;
    }
    char joined[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < doctor->added.count && used < sizeof joined - 1; i++) {
        text_copy(joined + used, sizeof joined - used, " ");
        text_copy(joined + used + 1, sizeof joined - used - 1, doctor->added.items[i]);
        used = strlen(joined);
    }
    doctor_say(ret_finding, DOCTOR_PASS, "%s%s%s", doctor->version, joined[0] != '\0' ? ", gets" : "", joined);
}

void doctor_server_settings(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    if (!doctor->is_command || doctor->prepared == ERROR_VERSION)
        return;
    if (doctor->prepared != ERROR_NONE) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s", doctor->prepare_problem.message);
        doctor_advise(ret_finding, "take it out of the environment or of CMD: kldump sets what a dump needs");
        return;
    }
    bool plain = doctor->settings.kind == SETTINGS_KIND_PLAIN;
    doctor_say(ret_finding, DOCTOR_PASS,
               plain ? "a plain run takes CMD as it is; nothing is added for a dump"
                     : "nothing in the environment or in CMD contradicts a dump");
    /* the routine ones say what is set and added; any other is worth a look */
    for (size_t i = 0; i < doctor->notes.count; i++) {
        const char *note = doctor->notes.items[i];
        if (text_starts(note, "set ") || text_starts(note, "added ") || doctor->command.is_wrapper)
            continue;
        char before[sizeof ret_finding->value];
        text_copy(before, sizeof before, ret_finding->result == DOCTOR_WARN ? ret_finding->value : "");
        doctor_say(ret_finding, DOCTOR_WARN, "%.600s%s%.400s", before, before[0] != '\0' ? "; " : "", note);
    }
    if (ret_finding->result == DOCTOR_WARN)
        doctor_advise(ret_finding, "take it out where it is not meant");
}

void doctor_server_port(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct listener found;
    struct process_list nobody = {0};
    struct error err = ERROR_INIT;
    unsigned port = doctor->command.port;
    if (!doctor->is_command || (doctor->command.is_wrapper && !doctor->command.port_given))
        return;
    if (listener_find(0, doctor->command.port, &nobody, &found, &err) != ERROR_NONE) {
        doctor_say(ret_finding, DOCTOR_WARN, "%u: %s", port, err.message);
        return;
    }
    if (found.owner != LISTENER_NONE) {
        char comm[PROCESS_COMM];
        doctor_say(ret_finding, DOCTOR_FAIL, "%u is held by pid %d (%s), which listens on %s", port, (int)found.pid,
                   text_clean(found.comm, strlen(found.comm), comm, sizeof comm), found.address);
        doctor_advise(ret_finding, "stop that program, or give CMD another --port");
    } else if (!listener_port_is_free(doctor->command.port)) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%u cannot be listened on", port);
        doctor_advise(ret_finding, "give CMD another --port; those below 1024 are root's");
    } else {
        doctor_say(ret_finding, DOCTOR_PASS, "%u is free", port);
    }
}
