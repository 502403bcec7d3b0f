/* Everything before the server is launched: settings, the command, the server's version, the dump folder and its space,
 * the runtime folder. Each refusal is one error with what to do; nothing is left behind but folders that were made. */
#include "loop/guard_private.h"
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/clock.h"
#include "sys/admin_names.h"
#include "sys/dump_folder.h"
#include "sys/environment.h"
#include "sys/file.h"
#include "sys/listener.h"
#include "sys/runtime.h"
#include "sys/sibling.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLAN_MAX = 4 * 1024 * 1024, VERSION_MAX = 4096 };
static const uint64_t version_limit_ms = 30000;

/* ---- where the arguments come from ---- */

static enum error_code read_standard_input(struct buffer *bytes, struct error *err)
{
    char part[65536];
    ssize_t got;
    while ((got = read(STDIN_FILENO, part, sizeof part)) > 0 && bytes->length < PLAN_MAX)
        buffer_append(bytes, part, (size_t)got);
    return got < 0 ? error_set_errno(err, ERROR_SYSTEM, errno, "the plan on standard input") : ERROR_NONE;
}

/* What kldumpd decided: the name, which comes before one in the config file too, and the folder that it made for us. */
static enum error_code read_place(const struct json *json, struct guard_plan *plan, struct error *err)
{
    const char *name, *folder;
    uint64_t mask;
    enum error_code code = json_get_string(json, "name", &name, err);
    if (code == ERROR_NONE)
        code = json_get_string(json, "folder", &folder, err);
    if (code == ERROR_NONE)
        code = json_get_u64(json, "umask", &mask, err);
    if (code != ERROR_NONE)
        return code;
    plan->name = memory_copy(name);
    plan->run_folder = memory_copy(folder);
    umask((mode_t)mask & 0777);
    return ERROR_NONE;
}

static enum error_code read_plan(struct guard_plan *plan, struct list *arguments, struct error *err)
{
    struct buffer bytes;
    buffer_init(&bytes);
    struct json *json = NULL;
    const char *directory;
    enum error_code code = read_standard_input(&bytes, err);
    if (code == ERROR_NONE)
        code = json_parse(bytes.data, bytes.length, (struct json_limits){PLAN_MAX, JSON_DEPTH, JSON_ANY_VALUES}, &json,
                          err);
    if (code == ERROR_NONE)
        code = json_get_list(json, "arguments", arguments, err);
    if (code == ERROR_NONE)
        code = json_get_list(json, "environment", &plan->environment, err);
    if (code == ERROR_NONE)
        code = read_place(json, plan, err);
    environment_clean(&plan->environment, ENVIRONMENT_CLIENT);
    if (code == ERROR_NONE)
        code = json_get_string(json, "directory", &directory, err);
    if (code == ERROR_NONE) {
        plan->working_directory = memory_copy(directory);
        if (chdir(directory) != 0)
            code = error_set_errno(err, ERROR_SYSTEM, errno, "working folder %s", directory);
    }
    json_free(json);
    explicit_bzero(bytes.data, bytes.length);
    buffer_fini(&bytes);
    return code;
}

static enum error_code take_environment(struct guard_plan *plan, struct error *err)
{
    list_add_all(&plan->environment, environ);
    char *here = getcwd(NULL, 0);
    if (here == NULL)
        return error_set_errno(err, ERROR_SYSTEM, errno, "the working folder");
    plan->working_directory = here;
    return ERROR_NONE;
}

/* A guard must not run with weaker rules than those that were written. */
static enum error_code read_rules(struct guard_plan *plan, struct error *err)
{
    struct error own = ERROR_INIT;
    if (admin_set_load(&plan->rules, &own) == ERROR_NONE)
        return ERROR_NONE;
    return error_set(err, ERROR_FORBIDDEN, "no run is guarded while the admin's rules cannot be used: %s", own.message);
}

static enum error_code read_settings(struct guard_plan *plan, const struct list *arguments, struct error *err)
{
    struct settings_texts given = {0}, file = {0};
    int rest = 0;
    uint64_t randomness = 0;
    if (getrandom(&randomness, sizeof randomness, 0) < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "random numbers");
    settings_parse_arguments((int)arguments->count, arguments->items, &given, &rest);
    if (plan->name != NULL) {
        free(given.text[SETTINGS_NAME]);
        free(given.origin[SETTINGS_NAME]);
        given.text[SETTINGS_NAME] = memory_copy(plan->name);
        given.origin[SETTINGS_NAME] = memory_copy("--name");
    }
    const char *path = settings_config_path(&given);
    enum error_code code = ERROR_NONE;
    struct buffer bytes;
    buffer_init(&bytes);
    if (path != NULL)
        code = file_read(path, SETTINGS_FILE_MAX, &bytes, err);
    if (code == ERROR_NONE && path != NULL)
        settings_parse_file(path, bytes.data, bytes.length, &file);
    admin_set_defaults(&plan->rules, &file);
    if (code == ERROR_NONE)
        code = settings_resolve(&given, &file, randomness, &plan->settings, err);
    plan->has_settings = code == ERROR_NONE;
    for (size_t i = (size_t)rest; code == ERROR_NONE && i < arguments->count; i++)
        list_add(&plan->given, arguments->items[i]);
    if (code == ERROR_NONE && plan->given.count == 0)
        code = error_set(err, ERROR_USAGE,
                         "no command after '--'; expected: run [OPTIONS] -- python3 -m sglang.launch_server ...");
    buffer_fini(&bytes);
    settings_texts_fini(&given);
    settings_texts_fini(&file);
    return code;
}

/* ---- the server's version, from the interpreter that CMD uses ---- */

struct version_answer {
    struct guard_plan *plan;
    bool done;
};

static void version_done(const struct child_result *result, void *user)
{
    struct version_answer *answer = user;
    answer->done = true;
    size_t length = strcspn(result->output, "\r\n");
    if (result->exit_code == 0 && length > 0)
        text_clean(result->output, length, answer->plan->version, sizeof answer->plan->version);
}

static void ask_version(struct guard *guard)
{
    struct guard_plan *plan = &guard->plan;
    struct list argv = {0};
    struct error err = ERROR_INIT;
    struct child *child = NULL;
    guard->server->version_query(&plan->command, &argv);
    struct version_answer answer = {plan, argv.count == 0};
    struct child_request request = {.argv = list_vector(&argv),
                                    .environment = list_vector(&plan->environment),
                                    .output_max_bytes = VERSION_MAX,
                                    .deadline_ms = version_limit_ms};
    if (argv.count > 0 && child_start(&guard->loop, &request, version_done, &answer, &child, &err) != ERROR_NONE)
        answer.done = true; /* the version stays unknown; prepare says what that means */
    while (!answer.done && !guard->interrupted)
        uv_run(&guard->loop, UV_RUN_ONCE);
    if (!answer.done)
        child_cancel(child);
    list_fini(&argv);
}

/* ---- the dump folder ---- */

static enum error_code refuse_foreign_files(const struct guard_plan *plan, struct error *err)
{
    char foreign[80];
    enum error_code code = dump_folder_foreign(plan->directory_fd, foreign, sizeof foreign, err);
    if (code != ERROR_NONE)
        return error_prefix(err, "dump folder %s", plan->directory);
    if (foreign[0] == '\0')
        return ERROR_NONE;
    return error_set(err, ERROR_EXISTS,
                     "dump folder %s holds '%s', which is no sealed dump of kldump; a dump beside foreign files mixes "
                     "runs: give an empty folder with --dir",
                     plan->directory, foreign);
}

/* Until the guard's end. */
static enum error_code take_dump_folder(const struct guard_plan *plan, struct error *err)
{
    char *runtime = runtime_path();
    char *runs =
        plan->run_folder != NULL ? memory_format("%s/..", plan->run_folder) : memory_format("%s/runs", runtime);
    enum error_code code = dump_folder_take(plan->directory_fd, plan->directory, runs, err);
    free(runtime);
    free(runs);
    return code;
}

static enum error_code open_dump_folder(struct guard_plan *plan, struct error *err)
{
    const char *given = plan->settings.directory;
    char *foreseen = dump_folder_foresee(given, NULL, NULL);
    enum error_code code = admin_set_allow_folder(&plan->rules, foreseen, err);
    free(foreseen);
    if (code == ERROR_NONE)
        code = dump_folder_make(given, err);
    if (code != ERROR_NONE)
        return code;
    plan->directory = realpath(given, NULL);
    if (plan->directory == NULL)
        return dump_folder_refuse(given, err);
    code = admin_set_allow_folder(&plan->rules, plan->directory, err); /* a part of the way may be a link since */
    if (code != ERROR_NONE)
        return code;
    plan->directory_fd = open(plan->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (plan->directory_fd < 0)
        return dump_folder_refuse(plan->directory, err);
    if (faccessat(plan->directory_fd, ".", W_OK | X_OK, AT_EACCESS) != 0)
        return dump_folder_refuse(plan->directory, err);
    code = take_dump_folder(plan, err);
    return code == ERROR_NONE ? refuse_foreign_files(plan, err) : code;
}

/* ---- the runtime folder ---- */

/* The folder of the name; an older run's is taken over once nobody holds its lock. */
static enum error_code take_run_folder(struct guard_plan *plan, struct error *err)
{
    enum error_code code = file_make_private_folder(plan->run_folder, err);
    if (code != ERROR_NONE)
        return code;
    char *lock = memory_format("%s/lock", plan->run_folder);
    code = file_lock(lock, &plan->lock_fd, err);
    free(lock);
    if (code == ERROR_BUSY)
        return error_set(err, ERROR_EXISTS,
                         "a run named %s is live; choose another --name, or end it: kldumpctl stop %s",
                         plan->settings.name, plan->settings.name);
    return code;
}

/* What the older run of this name left goes only now that the new one is accepted. */
static enum error_code clear_run_folder(struct guard_plan *plan, struct error *err)
{
    static const char *const leftovers[] = {"control",    "record.json",  "record.json.damaged",
                                            "server.log", "server.log.1", "t"};
    for (size_t i = 0; i < sizeof leftovers / sizeof leftovers[0]; i++) {
        char *path = memory_format("%s/%s", plan->run_folder, leftovers[i]);
        file_remove_all(path);
        free(path);
    }
    return file_make_private_folder(plan->temporary, err);
}

static enum error_code open_run_folder(struct guard_plan *plan, struct error *err)
{
    char *runtime = NULL;
    enum error_code code = ERROR_NONE;
    if (plan->run_folder == NULL)
        code = runtime_directory(RUNTIME_MAKE, &runtime, err);
    if (runtime != NULL)
        plan->run_folder = runtime_run_folder(runtime, plan->settings.name);
    free(runtime);
    if (code == ERROR_NONE)
        code = take_run_folder(plan, err);
    if (code != ERROR_NONE)
        return code;
    plan->control_path = memory_format("%s/control", plan->run_folder);
    plan->record_path = memory_format("%s/record.json", plan->run_folder);
    plan->log_path = memory_format("%s/server.log", plan->run_folder);
    plan->temporary = memory_format("%s/t", plan->run_folder);
    plan->copy_path = memory_format("%s/%s.kldump-run.json", plan->directory, plan->settings.name);
    return ERROR_NONE;
}

static enum error_code make_cookie(struct guard_plan *plan, struct error *err)
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set_errno(err, ERROR_SYSTEM, errno, "random numbers");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(plan->cookie + 2 * i, 3, "%02x", random[i]);
    return ERROR_NONE;
}

/* ---- all of it ---- */

static enum error_code refuse_taken_port(const struct guard_plan *plan, struct error *err)
{
    struct listener found;
    struct process_list nobody = {0};
    if (plan->command.is_wrapper && !plan->command.port_given)
        return ERROR_NONE;
    enum error_code code = listener_find(0, plan->command.port, &nobody, &found, err);
    if (code != ERROR_NONE || found.owner == LISTENER_NONE)
        return code;
    return error_set(err, ERROR_EXISTS,
                     "port %u is held by pid %d (%.40s) already; stop that, or give CMD another --port",
                     (unsigned)plan->command.port, (int)found.pid, found.comm);
}

static enum error_code find_programs(struct guard_plan *plan, struct error *err)
{
    plan->check_program = sibling_path("kldumpctl");
    return plan->check_program != NULL
               ? ERROR_NONE
               : error_set(err, ERROR_INTERNAL, "kldumpctl is neither beside this program nor installed in %s",
                           KLDUMP_BINDIR);
}

static enum error_code prepare_command(struct guard *guard, struct error *err)
{
    struct guard_plan *plan = &guard->plan;
    ask_version(guard);
    if (guard->interrupted)
        return error_set(err, ERROR_INTERRUPTED, "interrupted before the server was started");
    list_add_all(&plan->argv, plan->given.items);
    struct server_launch launch = {plan->directory, "kldump-idle", plan->temporary,
                                   plan->settings.kind == SETTINGS_KIND_PLAIN};
    return guard->server->prepare(&plan->command, plan->version, &launch, &plan->argv, &plan->environment, &plan->notes,
                                  err);
}

enum error_code guard_setup(struct guard *guard, char **arguments, struct error *err)
{
    struct guard_plan *plan = &guard->plan;
    struct list given = {0};
    plan->directory_fd = plan->lock_fd = plan->pending_fd = -1;
    plan->no_cgroup = getenv("KLDUMP_NO_CGROUP") != NULL;
    plan->from_daemon = arguments[0] != NULL && strcmp(arguments[0], "--plan") == 0 && arguments[1] == NULL;
    admin_names_user(getuid(), plan->owner, sizeof plan->owner);
    if (!plan->from_daemon)
        list_add_all(&given, arguments);
    enum error_code code = plan->from_daemon ? read_plan(plan, &given, err) : take_environment(plan, err);
    if (code == ERROR_NONE)
        code = read_rules(plan, err);
    if (code == ERROR_NONE)
        code = read_settings(plan, &given, err);
    list_fini(&given);
    if (code == ERROR_NONE)
        code = guard->server->read_command(&plan->given, &plan->environment, &plan->command, err);
    if (code == ERROR_NONE)
        code = refuse_taken_port(plan, err);
    if (code == ERROR_NONE)
        code = find_programs(plan, err);
    if (code == ERROR_NONE)
        code = make_cookie(plan, err);
    if (code == ERROR_NONE)
        code = open_dump_folder(plan, err);
    if (code == ERROR_NONE)
        code = guard_space_check(plan, err);
    guard_init_timers(guard); /* from here on there is something to tidy up */
    if (code == ERROR_NONE)
        code = open_run_folder(plan, err);
    if (code == ERROR_NONE)
        code = prepare_command(guard, err);
    if (code == ERROR_NONE)
        code = clear_run_folder(plan, err);
    return code;
}

void guard_plan_fini(struct guard_plan *plan)
{
    char **const texts[] = {&plan->name,         &plan->working_directory, &plan->directory, &plan->run_folder,
                            &plan->control_path, &plan->record_path,       &plan->log_path,  &plan->temporary,
                            &plan->copy_path,    &plan->check_program};
    struct list *const lists[] = {&plan->given, &plan->argv, &plan->environment, &plan->notes, &plan->raised};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        free(*texts[i]);
        *texts[i] = NULL;
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        list_fini(lists[i]);
    server_command_fini(&plan->command);
    admin_set_fini(&plan->rules);
    if (plan->has_settings)
        settings_fini(&plan->settings);
    if (plan->directory_fd >= 0)
        close(plan->directory_fd);
    if (plan->lock_fd >= 0)
        close(plan->lock_fd);
    if (plan->pending_fd >= 0)
        close(plan->pending_fd);
}
