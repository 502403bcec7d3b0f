/* What an investigation has finished: DIR/investigation.json, replaced after each step, and the results beside it. */
#include "config.h"
#include "ctl/investigate.h"

#include "base/memory.h"
#include "base/text.h"
#include "ctl/investigate_read.h"
#include "ctl/result_file.h"
#include "ctl/show.h"
#include "sys/dump_folder.h"
#include "sys/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_MODE = 0700, FILE_MODE = 0600, RESULT_MAX = 1024 * 1024 * 1024 };
#define SCHEMA     "kldump.investigation/1"
#define STATE_FILE "investigation.json"

char *investigate_result(const struct investigate *work, enum investigation_step_id id, size_t part)
{
    const char *name = investigation_step_name(id);
    return part == 0 ? memory_format("%s/%s.json", work->directory, name)
                     : memory_format("%s/%s-%zu.json", work->directory, name, part + 1);
}

/* ---- the model ---- */

/* Names, sizes and times of the files in a folder, in any order; a link is the file that it leads to. */
static uint64_t stamp_files(const char *folder)
{
    uint64_t sum = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        struct stat status;
        if (entry->d_name[0] == '.' || fstatat(dirfd(entries), entry->d_name, &status, 0) != 0 ||
            !S_ISREG(status.st_mode))
            continue;
        uint64_t hash = hash_number(hash_text(HASH_BEGIN, entry->d_name), (uint64_t)status.st_size);
        sum += hash_number(hash_number(hash, (uint64_t)status.st_mtim.tv_sec), (uint64_t)status.st_mtim.tv_nsec);
    }
    if (entries != NULL)
        closedir(entries);
    return sum;
}

/* Of each folder in CMD that holds a model: other weights under the same name are another server. */
static uint64_t stamp_models(const struct list *server)
{
    uint64_t hash = HASH_BEGIN;
    for (size_t i = 0; i < server->count; i++) {
        const char *value = text_starts(server->items[i], "-") ? strchr(server->items[i], '=') : NULL;
        const char *path = value != NULL ? value + 1 : server->items[i];
        char *config = memory_format("%s/config.json", path);
        if (result_file_is(config))
            hash = hash_number(hash, stamp_files(path));
        free(config);
    }
    return hash;
}

/* ---- whether a step is finished ---- */

/* False: one of them cannot be read. */
static bool hash_results(const struct investigate *work, enum investigation_step_id id, uint64_t *hash)
{
    bool fine = true;
    for (size_t part = 0; part < investigate_steps[id].parts && fine; part++) {
        char *path = investigate_result(work, id, part);
        struct buffer text;
        buffer_init(&text);
        fine = file_read(path, RESULT_MAX, &text, NULL) == ERROR_NONE;
        *hash = hash_bytes(hash_number(*hash, text.length), text.data, text.length);
        buffer_fini(&text);
        free(path);
    }
    return fine;
}

/* False: what it is built on is not there. */
static bool make_key(const struct investigate *work, enum investigation_step_id id, char ret_key[HASH_TEXT])
{
    uint64_t hash = hash_text(hash_text(HASH_BEGIN, PACKAGE_VERSION), work->shown);
    hash = hash_number(hash_number(hash_number(hash, work->new_tokens), work->least), work->model_stamp);
    if (id != INVESTIGATION_DOCTOR)
        hash = hash_text(hash, work->prompts_hash);
    for (int other = 0; other < INVESTIGATION_STEPS; other++)
        if ((investigate_steps[id].built_on >> other & 1) != 0 &&
            !hash_results(work, (enum investigation_step_id)other, &hash))
            return false;
    hash_show(hash, ret_key);
    return true;
}

static bool make_content(const struct investigate *work, enum investigation_step_id id, char ret_content[HASH_TEXT])
{
    uint64_t hash = HASH_BEGIN;
    bool fine = hash_results(work, id, &hash);
    hash_show(hash, ret_content);
    return fine;
}

bool investigate_is_finished(const struct investigate *work, enum investigation_step_id id)
{
    char key[HASH_TEXT], content[HASH_TEXT];
    const struct investigate_mark *mark = &work->marks[id];
    return work->found.steps[id].state == INVESTIGATION_DONE && make_key(work, id, key) &&
           make_content(work, id, content) && strcmp(key, mark->key) == 0 && strcmp(content, mark->content) == 0;
}

void investigate_mark(struct investigate *work, enum investigation_step_id id)
{
    struct investigate_mark *mark = &work->marks[id];
    if (!make_key(work, id, mark->key) || !make_content(work, id, mark->content))
        *mark = (struct investigate_mark){0};
}

void investigate_forget(struct investigate *work, enum investigation_step_id id)
{
    struct investigation_step *step = &work->found.steps[id];
    for (size_t part = 0; part < investigate_steps[id].parts; part++) {
        char *path = investigate_result(work, id, part);
        unlink(path);
        free(path);
    }
    if (investigate_steps[id].beside != NULL) {
        char *path = memory_format("%s/%s", work->directory, investigate_steps[id].beside);
        unlink(path);
        free(path);
    }
    free(step->why);
    free(step->command);
    free(step->result);
    *step = (struct investigation_step){0};
    work->marks[id] = (struct investigate_mark){0};
}

/* ---- the file ---- */

static void add_step(struct json *steps, const struct investigate *work, enum investigation_step_id id)
{
    const struct investigation_step *step = &work->found.steps[id];
    struct json *one = json_set_object(steps, investigation_step_name(id));
    json_set_string(one, "state", investigation_state_word(step->state));
    json_set_u64(one, "status", (uint64_t)step->status);
    json_set_string(one, "why", step->why);
    json_set_string(one, "command", step->command);
    json_set_u64(one, "took_ms", step->took_ms);
    json_set_string(one, "key", work->marks[id].key);
    json_set_string(one, "content", work->marks[id].content);
}

enum error_code investigate_save(struct investigate *work, struct error *err)
{
    struct json *root = json_object();
    json_set_string(root, "schema", SCHEMA);
    json_set_string(root, "version", PACKAGE_VERSION);
    json_set_string(root, "name", work->name);
    json_set_string(root, "command", work->shown);
    struct json *prompts = json_set_object(root, "prompts");
    json_set_string(prompts, "given", work->given);
    json_set_string(prompts, "given_hash", work->given_hash);
    json_set_string(prompts, "hash", work->prompts_hash);
    json_set_u64(root, "new_tokens", work->new_tokens);
    json_set_u64(root, "min_samples", work->least);
    json_set_u64(root, "start_ms", work->start_ms);
    struct json *steps = json_set_object(root, "steps");
    for (int id = 0; id < INVESTIGATION_STEPS; id++)
        add_step(steps, work, (enum investigation_step_id)id);
    struct buffer text;
    char *path = memory_format("%s/" STATE_FILE, work->directory);
    buffer_init(&text);
    json_print_pretty(root, &text);
    buffer_text(&text, "\n");
    enum error_code code = file_replace(path, text.data, text.length, FILE_MODE, FILE_SYNC, err);
    buffer_fini(&text);
    free(path);
    json_free(root);
    return code;
}

static void copy_hash(char ret_hash[HASH_TEXT], const struct json *json, const char *path)
{
    const char *text = show_member(json, path);
    if (strlen(text) < HASH_TEXT)
        memcpy(ret_hash, text, strlen(text) + 1);
}

static void take_step(struct investigate *work, const struct json *root, enum investigation_step_id id)
{
    struct investigation_step *step = &work->found.steps[id];
    const struct json *one = json_member(json_member(root, "steps"), investigation_step_name(id));
    uint64_t status = 0;
    if (strcmp(show_member(one, "state"), investigation_state_word(INVESTIGATION_DONE)) != 0)
        return;
    step->state = INVESTIGATION_DONE;
    step->taken_over = true;
    step->command = memory_copy(show_member(one, "command"));
    step->result = memory_format("%s.json", investigation_step_name(id));
    show_number(one, "took_ms", &step->took_ms);
    show_number(one, "status", &status);
    step->status = (int)status;
    copy_hash(work->marks[id].key, one, "key");
    copy_hash(work->marks[id].content, one, "content");
}

/* Of another CMD, or over other prompts: nothing of it can be used. */
static enum error_code check_same(const struct investigate *work, const struct json *root, struct error *err)
{
    uint64_t new_tokens = 0, least = 0;
    const char *command = show_member(root, "command"), *given = show_member(root, "prompts.given");
    show_number(root, "new_tokens", &new_tokens);
    show_number(root, "min_samples", &least);
    if (strcmp(command, work->shown) != 0)
        return error_set(err, ERROR_FORBIDDEN,
                         "%s holds the investigation of another command: there it is '%.250s', here '%.250s'; give "
                         "that, or another --dir",
                         work->directory, command, work->shown);
    if (strcmp(show_member(root, "prompts.given_hash"), work->given_hash) != 0 || new_tokens != work->new_tokens ||
        least != work->least)
        return error_set(err, ERROR_FORBIDDEN,
                         "%s holds an investigation over other prompts: there %s (hash %s, --new %llu, --min-samples "
                         "%llu), here %s (hash %s, --new %llu, --min-samples %llu); give those, or another --dir",
                         work->directory, given, show_member(root, "prompts.given_hash"),
                         (unsigned long long)new_tokens, (unsigned long long)least, work->given, work->given_hash,
                         (unsigned long long)work->new_tokens, (unsigned long long)work->least);
    return ERROR_NONE;
}

static enum error_code take_over(struct investigate *work, const char *path, struct error *err)
{
    struct json *root = NULL;
    enum error_code code = result_file_read(path, "kldump.investigation/", &root, err);
    if (code != ERROR_NONE)
        error_prefix(err, "what is finished in %s is not known any more, give another --dir", work->directory);
    else if (strcmp(show_member(root, "schema"), SCHEMA) != 0)
        code = error_set(err, ERROR_FORBIDDEN,
                         "%s is of another kldump: its schema is %.60s, expected " SCHEMA "; give another --dir", path,
                         show_member(root, "schema"));
    if (code == ERROR_NONE)
        code = check_same(work, root, err);
    if (code == ERROR_NONE) {
        work->earlier = memory_copy(show_member(root, "name"));
        if (!work->has_name && text_is_name(work->earlier)) {
            free(work->name);
            work->name = memory_copy(work->earlier);
        }
        copy_hash(work->prompts_hash, root, "prompts.hash");
        show_number(root, "start_ms", &work->start_ms);
        for (int id = 0; id < INVESTIGATION_STEPS; id++)
            take_step(work, root, (enum investigation_step_id)id);
    }
    json_free(root);
    return code;
}

/* ---- the folder ---- */

/* Nothing of anybody else's is written over. */
static enum error_code check_empty(const char *path, struct error *err)
{
    DIR *folder = opendir(path);
    if (folder == NULL)
        return error_set_errno(err, ERROR_SYSTEM, errno, "%s", path);
    enum error_code code = ERROR_NONE;
    for (struct dirent *entry; code == ERROR_NONE && (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            code = error_set(err, ERROR_FORBIDDEN,
                             "%s is not empty and holds no investigation ('%.60s' lies there); expected a folder of "
                             "its own: give another --dir",
                             path, entry->d_name);
    closedir(folder);
    return code;
}

static enum error_code take_folder(struct investigate *work, struct error *err)
{
    if (mkdir(work->directory, FOLDER_MODE) != 0 && errno != EEXIST)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot make the folder %s", work->directory);
    char *lock = memory_format("%s/.lock", work->directory);
    enum error_code code = file_lock(lock, &work->lock_fd, err);
    if (code == ERROR_BUSY) /* whose status would be an answer */
        code = error_set(err, ERROR_FORBIDDEN,
                         "another 'kldumpctl investigate' is at work in %s; wait for its end, or give another --dir",
                         work->directory);
    free(lock);
    return code;
}

static bool has_dumps(const char *folder)
{
    bool found = false;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries != NULL && !found && (entry = readdir(entries)) != NULL;)
        found = text_starts(entry->d_name, "capture") || text_starts(entry->d_name, "invariance");
    if (entries != NULL)
        closedir(entries);
    return found;
}

void investigate_choose_dumps(struct investigate *work)
{
    char *path = memory_format("%s/dumps", work->directory);
    for (unsigned i = 2; has_dumps(path); i++) {
        free(path);
        path = memory_format("%s/dumps-%u", work->directory, i);
    }
    free(work->dumps);
    work->dumps = path;
}

/* What file_replace of a call that was killed has left. Without `all` only that of the first file, which is written
 * before anything else: then the folder may not be ours yet. */
static void remove_leftovers(const char *folder, bool all)
{
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;)
        if (file_is_leftover(entry->d_name) && (all || text_starts(entry->d_name, STATE_FILE ".")))
            unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries != NULL)
        closedir(entries);
}

enum error_code investigate_open(struct investigate *work, struct error *err)
{
    struct stat status;
    work->lock_fd = -1;
    work->run.pidfd = -1;
    investigate_choose_dumps(work);
    work->model_stamp = stamp_models(&work->server);
    enum error_code code = take_folder(work, err);
    if (code != ERROR_NONE)
        return code;
    char *path = memory_format("%s/" STATE_FILE, work->directory);
    bool is_ours = lstat(path, &status) == 0;
    remove_leftovers(work->directory, is_ours);
    code = is_ours ? take_over(work, path, err) : check_empty(work->directory, err);
    free(path);
    if (code != ERROR_NONE)
        return code;
    bool known = investigate_prompts_are_there(work);
    for (int id = 0; id < INVESTIGATION_STEPS; id++)
        if (!known || !investigate_is_finished(work, (enum investigation_step_id)id))
            investigate_forget(work, (enum investigation_step_id)id);
    work->found.name = memory_copy(work->name);
    work->found.directory = memory_copy(work->directory);
    work->found.command = memory_copy(work->shown);
    return investigate_read(work->directory, &work->found, err);
}

void investigate_close(struct investigate *work)
{
    held_run_stop(&work->run);
    if (work->lock_fd >= 0)
        close(work->lock_fd);
    investigation_fini(&work->found);
    list_fini(&work->options);
    list_fini(&work->server);
    free(work->name);
    free(work->directory);
    free(work->shown);
    free(work->dumps);
    free(work->given);
    free(work->earlier);
    *work = (struct investigate){.lock_fd = -1, .run.pidfd = -1};
}
