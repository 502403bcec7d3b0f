#include "loop/daemon_plan.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"
#include "conf/settings.h"
#include "json/json.h"
#include "loop/daemon_private.h"
#include "sys/file_below.h"
#include "sys/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_TRIES = 100, UMASK_MAX = 0777, UMASK_DEFAULT = 022 };

/* ---- the request ---- */

struct asked {
    struct list arguments, environment;
    const char *directory; /* of the request */
    uint64_t umask;
};

static enum error_code read_request(const struct json *parameters, struct asked *asked, struct error *err)
{
    enum error_code code = json_get_list(parameters, "arguments", &asked->arguments, err);
    if (code == ERROR_NONE)
        code = json_get_list(parameters, "environment", &asked->environment, err);
    if (code == ERROR_NONE)
        code = json_get_string(parameters, "directory", &asked->directory, err);
    if (code == ERROR_NONE)
        code = json_optional_u64(parameters, "umask", UMASK_DEFAULT, &asked->umask, err);
    if (code == ERROR_NONE && asked->umask > UMASK_MAX)
        code = error_set(err, ERROR_BAD_VALUE, "umask: expected at most %d (octal 777), not %llu", UMASK_MAX,
                         (unsigned long long)asked->umask);
    if (code == ERROR_NONE && asked->directory[0] != '/')
        code =
            error_set(err, ERROR_BAD_VALUE, "directory: expected an absolute path, not \"%.200s\"", asked->directory);
    for (size_t i = 0; code == ERROR_NONE && i < asked->environment.count; i++)
        if (strchr(asked->environment.items[i], '=') == NULL || asked->environment.items[i][0] == '=')
            code = error_set(err, ERROR_BAD_VALUE, "environment.%zu: expected NAME=VALUE", i);
    if (code == ERROR_FORMAT)
        code = err->code = ERROR_BAD_VALUE;
    return code;
}

/* ---- the name ---- */

/* A run lives when its guard does, as our own record tells, or when its lock is held. A run that has ended still has
 * its folder: its owner may use the name again, nobody else, or he could remove what is not his. */
static enum error_code check_name(struct daemon *daemon, const char *name, uid_t uid, int runs_fd,
                                  struct daemon_owned **ret_previous, struct error *err)
{
    char owner[96];
    struct stat status = {.st_uid = uid};
    struct daemon_owned owned;
    if (daemon_start_is_under_way(daemon, name))
        return error_set(err, ERROR_EXISTS, "a run named %s is being started; choose another --name", name);
    bool there = fstatat(runs_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    bool recorded = daemon_owned_read(daemon, name, &owned, NULL) == ERROR_NONE;
    uid_t whose = recorded && owned.live ? owned.uid : status.st_uid;
    enum error_code code = ERROR_NONE;
    daemon_access_user(daemon, whose, owner, sizeof owner);
    if ((recorded && owned.live) || daemon_runs_is_live(daemon, name))
        code = error_set(err, ERROR_EXISTS,
                         "a run named %s is live, that of %s; choose another --name, or end it: kldumpctl stop %s",
                         name, owner, name);
    else if (there && whose != uid)
        code = error_set(err, ERROR_EXISTS,
                         "the name %s is that of a run of %s, which has ended; choose another --name", name, owner);
    if (code == ERROR_NONE && recorded) {
        *ret_previous = memory_new(sizeof **ret_previous);
        **ret_previous = owned;
    } else if (recorded) {
        daemon_owned_fini(&owned);
    }
    return code;
}

static enum error_code random_name(int runs_fd, char name[65], struct error *err)
{
    struct stat status;
    for (int i = 0; i < NAME_TRIES; i++) {
        uint64_t randomness = 0;
        if (getrandom(&randomness, sizeof randomness, 0) < 0)
            return error_set_errno(err, ERROR_SYSTEM, errno, "random numbers");
        settings_random_name(randomness, name, 65);
        if (fstatat(runs_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            return ERROR_NONE;
    }
    return error_set(err, ERROR_EXISTS, "%d random names are taken; choose a --name", NAME_TRIES);
}

/* Only the name counts here; every other fault is the guard's to tell, which also reads the config file. */
static enum error_code pick_name(const struct asked *asked, int runs_fd, char name[65], struct error *err)
{
    struct settings_texts texts = {0};
    int rest;
    settings_parse_arguments((int)asked->arguments.count, asked->arguments.items, &texts, &rest);
    const char *given = texts.text[SETTINGS_NAME];
    enum error_code code = ERROR_NONE;
    if (given == NULL)
        code = random_name(runs_fd, name, err);
    else if (text_is_name(given))
        text_copy(name, 65, given);
    else
        code = error_set(err, ERROR_BAD_VALUE,
                         "--name: expected 1 to 64 of A-Z a-z 0-9 . _ - that begin with none of '.' and '-', not "
                         "\"%.80s\"",
                         given);
    settings_texts_fini(&texts);
    return code;
}

/* ---- the folder ---- */

static enum error_code make_folder(int runs_fd, const char *name, uid_t uid, gid_t gid, bool *ret_made,
                                   struct error *err)
{
    struct stat status;
    int fd = -1;
    bool made = mkdirat(runs_fd, name, 0700) == 0;
    if (!made && errno != EEXIST)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot make the folder of run %s", name);
    enum error_code code = file_below_folder(runs_fd, name, &fd, &status, err);
    if (code == ERROR_NONE && made && status.st_uid != uid && fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0)
        code = error_set_errno(err, ERROR_SYSTEM, errno, "cannot give the folder of run %s to uid %u", name,
                               (unsigned)uid);
    if (fd >= 0)
        close(fd);
    if (code == ERROR_NONE)
        *ret_made = made;
    else if (made)
        unlinkat(runs_fd, name, AT_REMOVEDIR);
    return code;
}

static enum error_code open_runs(const struct daemon *daemon, int *ret_fd, struct error *err)
{
    int fd = daemon_runs_open_all(daemon);
    if (fd < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "%s/runs", daemon->runtime);
    *ret_fd = fd;
    return ERROR_NONE;
}

/* ---- the plan ---- */

/* The client's environment travels in memory alone: what stands in a process's own environment or arguments, other
 * programs can read. */
static enum error_code write_plan(const struct daemon *daemon, const struct asked *asked, const char *name, int *ret_fd,
                                  struct error *err)
{
    struct buffer text;
    int fd = memfd_create("kldump-plan", MFD_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "the plan");
    buffer_init(&text);
    struct json *plan = json_object();
    char *folder = runtime_run_folder(daemon->runtime, name);
    json_set_list(plan, "arguments", &asked->arguments);
    json_set_list(plan, "environment", &asked->environment);
    json_set_string(plan, "directory", asked->directory);
    json_set_u64(plan, "umask", asked->umask);
    json_set_string(plan, "name", name);
    json_set_string(plan, "folder", folder);
    json_print(plan, &text);
    json_free(plan);
    free(folder);
    size_t done = 0;
    ssize_t count = 0;
    while (done < text.length && (count = write(fd, text.data + done, text.length - done)) > 0)
        done += (size_t)count;
    int system = errno;
    bool whole = done == text.length && lseek(fd, 0, SEEK_SET) == 0;
    explicit_bzero(text.data, text.length);
    buffer_fini(&text);
    if (!whole) {
        close(fd);
        return error_set_errno(err, ERROR_SYSTEM, system, "the plan");
    }
    *ret_fd = fd;
    return ERROR_NONE;
}

/* ---- all of it ---- */

static void forget(struct daemon_owned **previous)
{
    if (*previous != NULL)
        daemon_owned_fini(*previous);
    free(*previous);
    *previous = NULL;
}

enum error_code daemon_plan_make(struct daemon *daemon, const struct control_request *request, uid_t uid, gid_t gid,
                                 struct daemon_plan *ret_plan, struct error *err)
{
    struct daemon_plan plan = {.uid = uid, .fd = -1};
    struct asked asked = {.directory = NULL};
    int runs_fd = -1;
    enum error_code code = read_request(request->parameters, &asked, err);
    if (code == ERROR_NONE)
        code = open_runs(daemon, &runs_fd, err);
    if (code == ERROR_NONE)
        code = pick_name(&asked, runs_fd, plan.name, err);
    if (code == ERROR_NONE)
        code = check_name(daemon, plan.name, uid, runs_fd, &plan.previous, err);
    if (code == ERROR_NONE)
        code = write_plan(daemon, &asked, plan.name, &plan.fd, err);
    if (code == ERROR_NONE)
        code = make_folder(runs_fd, plan.name, uid, gid, &plan.made, err);
    if (runs_fd >= 0)
        close(runs_fd);
    list_fini(&asked.arguments);
    list_fini(&asked.environment);
    if (code == ERROR_NONE)
        *ret_plan = plan;
    else
        daemon_plan_fini(&plan);
    return code;
}

void daemon_plan_undo(struct daemon *daemon, const struct daemon_plan *plan)
{
    static const char *const left[] = {"lock", "control", "server.log"};
    struct stat status;
    int runs_fd = -1, fd = -1;
    if (plan->previous == NULL)
        daemon_owned_remove(daemon, plan->name);
    else
        daemon_owned_write(daemon, plan->previous, NULL);
    if (!plan->made || open_runs(daemon, &runs_fd, NULL) != ERROR_NONE)
        return;
    if (file_below_folder(runs_fd, plan->name, &fd, &status, NULL) == ERROR_NONE && status.st_uid == plan->uid)
        for (size_t i = 0; i < sizeof left / sizeof left[0]; i++)
            unlinkat(fd, left[i], 0);
    unlinkat(runs_fd, plan->name, AT_REMOVEDIR); /* not while anything else is in it */
    if (fd >= 0)
        close(fd);
    close(runs_fd);
}

void daemon_plan_fini(struct daemon_plan *plan)
{
    if (plan->fd >= 0)
        close(plan->fd);
    plan->fd = -1;
    forget(&plan->previous);
}
