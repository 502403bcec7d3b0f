#include "ctl/kl_vary.h"

#include "analysis/kl.h"
#include "base/memory.h"
#include "base/text.h"
#include "ctl/held_run.h"
#include "ctl/interrupt.h"
#include "ctl/progress.h"
#include "ctl/result_file.h"
#include "sys/dump_folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RESULT_MODE = 0644, STEM_MOST = 100 /* of a label in a file's name, which the number makes unique */ };

/* ---- before the first start ---- */

static void add_start(struct kl_vary_all *all, char *label, struct vary_setting setting)
{
    all->starts = memory_resize(all->starts, all->count + 1, sizeof all->starts[0]);
    struct kl_vary_start *start = &all->starts[all->count++];
    *start = (struct kl_vary_start){.label = label, .setting = setting};
    start->stem = memory_format("%zu-%.*s", all->count, STEM_MOST, label);
    for (char *c = start->stem; *c != '\0'; c++) /* a value may be a path, or JSON */
        if (strchr(" ,/", *c) != NULL || (unsigned char)*c < ' ')
            *c = '-';
}

static enum error_code add_variants(struct kl_vary_all *all, const struct list *wanted, struct error *err)
{
    struct vary_setting *settings = NULL;
    size_t count = 0;
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; code == ERROR_NONE && i < wanted->count; i++)
        code = vary_parse(wanted->items[i], &settings, &count, err);
    for (size_t i = 0; i < count; i++)
        add_start(all, memory_format("%s=%s", settings[i].name, settings[i].value), settings[i]);
    free(settings);
    return code;
}

static enum error_code make_commands(struct kl_vary_all *all, struct error *err)
{
    struct list given = {0};
    enum error_code code = ERROR_NONE;
    list_add_all(&given, all->plan->command);
    for (size_t i = 0; code == ERROR_NONE && i < all->count; i++) {
        struct kl_vary_start *start = &all->starts[i];
        if (start->setting.name == NULL)
            list_add_all(&start->command, given.items);
        else
            code = vary_command(&given, &start->setting, &start->command, err);
    }
    list_fini(&given);
    return code;
}

static char *result_path(const struct kl_vary_all *all, const struct kl_vary_start *start)
{
    return memory_format("%s/%s.json", all->folder, start->stem);
}

static enum error_code make_folder(struct kl_vary_all *all, struct error *err)
{
    const char *path = all->plan->settings->directory;
    enum error_code code = dump_folder_make(path, err);
    if (code != ERROR_NONE)
        return code;
    all->folder = realpath(path, NULL);
    if (all->folder == NULL)
        return dump_folder_refuse(path, err);
    for (size_t i = 0; i < all->count; i++) { /* no result of an earlier call is taken for one of this */
        char *result = result_path(all, &all->starts[i]);
        unlink(result);
        free(result);
    }
    return ERROR_NONE;
}

/* Each run has a name of its own. */
static char *run_name(const struct kl_vary_all *all, size_t index)
{
    return memory_format("%s-%zu", all->plan->settings->name, index + 1);
}

static enum error_code check_names(const struct kl_vary_all *all, struct error *err)
{
    char *last = run_name(all, all->count - 1);
    enum error_code code = ERROR_NONE;
    if (!text_is_name(last))
        code = error_set(err, ERROR_BAD_VALUE, "--name %s: the last run would be %s, which is too long for a name",
                         all->plan->settings->name, last);
    free(last);
    return code;
}

enum error_code kl_vary_prepare(const struct kl_vary_plan *plan, struct kl_vary_all *ret_all, struct error *err)
{
    struct kl_vary_all all = {.plan = plan};
    add_start(&all, memory_copy("as given"), (struct vary_setting){0});
    add_start(&all, memory_copy("as given again"), (struct vary_setting){0});
    enum error_code code = add_variants(&all, plan->wanted, err);
    if (code == ERROR_NONE)
        code = make_commands(&all, err);
    if (code == ERROR_NONE)
        code = check_names(&all, err);
    if (code == ERROR_NONE)
        code = make_folder(&all, err);
    if (code == ERROR_NONE)
        *ret_all = all;
    else
        kl_vary_all_fini(&all);
    return code;
}

/* ---- how far it is ---- */

/* One start; its lines of progress live as long as it. */
struct stage {
    const struct kl_vary_all *all;
    const struct kl_vary_start *start;
    struct progress progress;
    struct list lines;
    const char *what; /* of the last line */
};

static const char *line_of(struct stage *stage, const char *what)
{
    if (stage->lines.count == 0 || stage->what != what) {
        size_t number = (size_t)(stage->start - stage->all->starts) + 1;
        list_add_format(&stage->lines, "variant %zu of %zu, %.60s: %s", number, stage->all->count, stage->start->label,
                        what);
        stage->what = what;
    }
    return stage->lines.items[stage->lines.count - 1];
}

static void show_measuring(void *context, const char *what, uint64_t done, uint64_t total)
{
    struct stage *stage = context;
    progress_show(&stage->progress, line_of(stage, what), done, total);
}

static bool is_wanted(void *user)
{
    (void)user;
    return interrupt_number() == 0;
}

static bool is_start_wanted(void *user)
{
    struct stage *stage = user;
    if (stage->all->plan->show)
        progress_wait(&stage->progress, line_of(stage, "starting"));
    return is_wanted(user);
}

static void stop(struct stage *stage, struct held_run *run)
{
    if (stage->all->plan->show)
        progress_wait(&stage->progress, line_of(stage, "stopping"));
    held_run_stop(run);
    progress_end(&stage->progress);
    list_fini(&stage->lines);
}

/* ---- two results ---- */

static bool is_dirty(const struct ab_request *request)
{
    const double *a = request->values[0], *b = request->values[1];
    for (size_t k = 0; a != NULL && b != NULL && k < request->count; k++)
        if (kl_class_of(a[k], b[k]) == KL_CLASS_BEYOND)
            return true;
    return false;
}

/* Bit for bit, without requests that one of the two does not count. The place is that of the first request of which as
 * many tokens were restored in both, where such a one differs. */
static void compare_path(const struct ab_path *given, const struct ab_path *here, struct kl_vary_path *path)
{
    struct ab_path_change change;
    ab_compare_path(given, here, &change);
    for (size_t i = 0; i < change.count; i++) {
        const struct ab_change *one = &change.requests[i];
        path->lost += !given->requests[i].dropped && here->requests[i].dropped && is_dirty(&given->requests[i]);
        if (given->requests[i].dropped || here->requests[i].dropped)
            continue;
        path->compared_tokens += one->compared + one->behind;
        path->differing += one->values + one->behind;
        if (one->position == UINT64_MAX || (path->place.path != NULL && (one->cached || !path->restored)))
            continue;
        path->place = (struct kl_vary_place){given->name, i, one->position};
        path->restored = one->cached;
    }
    path->compared = path->compared_tokens > 0;
    ab_path_change_fini(&change);
}

static enum error_code compare(const struct kl_vary_all *all, const struct ab_read *here, struct kl_vary_start *start,
                               struct error *err)
{
    enum error_code code = ab_read_comparable(&all->given, here, err);
    for (int id = 0; code == ERROR_NONE && id < KL_PATHS; id++) {
        const char *name = kl_path_member((enum kl_path_id)id);
        const struct ab_path *a = ab_read_path(&all->given, name), *b = ab_read_path(here, name);
        if (a != NULL && b != NULL)
            compare_path(a, b, &start->paths[id]);
    }
    return code;
}

/* Takes the result over: that of the first start is what the others are compared with. */
static enum error_code keep(struct kl_vary_all *all, struct kl_vary_start *start, const struct kl_report *report,
                            struct error *err)
{
    struct ab_read here = {0};
    struct json *json = kl_report_json(report);
    char *path = result_path(all, start);
    enum error_code code = result_file_write(path, json, RESULT_MODE, err);
    if (code == ERROR_NONE)
        start->result = path;
    else
        free(path);
    if (code == ERROR_NONE)
        code = ab_read_take(start->label, json, &here, err);
    else
        json_free(json);
    if (code == ERROR_NONE && start == &all->starts[KL_VARY_FIRST])
        all->given = here;
    else if (code == ERROR_NONE) {
        code = compare(all, &here, start, err);
        ab_read_fini(&here);
    }
    if (code != ERROR_NONE)
        return code;
    start->state = KL_VARY_MEASURED;
    start->clean = kl_report_is_fine(report);
    start->shifted = report->reading.shifted;
    start->signature = memory_copy(report->reading.signature);
    for (int id = 0; id < KL_PATHS; id++) {
        start->paths[id].grade = report->paths[id].grade;
        start->paths[id].fine = kl_report_path_is_fine(report, (enum kl_path_id)id);
        start->paths[id].mean = report->paths[id].tokens > 0 ? report->paths[id].mean : NAN;
        start->paths[id].max = report->paths[id].tokens > 0 ? report->paths[id].max : NAN;
        start->paths[id].tokens = report->paths[id].tokens;
        if (report->paths[id].why_not != NULL)
            start->paths[id].why_not = memory_copy(report->paths[id].why_not);
        else if (start->paths[id].lost > 0)
            start->paths[id].why_not =
                memory_format("%zu requests that are dirty as given do not count here", start->paths[id].lost);
    }
    return ERROR_NONE;
}

/* ---- whether a setting arrived ---- */

/* Whether the server has resolved something else than as given; what differs by itself does not count. */
static bool has_arrived(const struct kl_vary_all *all, const struct kl_vary_start *start)
{
    for (size_t i = 0; i < start->settings.count; i++)
        if (!start->settings.items[i].by_chance && !list_has(&all->drifting, start->settings.items[i].name))
            return true;
    return false;
}

/* A release whose helpers draw their tokens gives the same ones under the same seed alone. */
static enum error_code check_seed(const struct kl_vary_start *start, const struct generate_server *server,
                                  struct error *err)
{
    for (size_t i = 0; i < start->settings.count; i++)
        if (start->settings.items[i].by_chance && kl_take_temperature(server) > 0)
            return error_set(err, ERROR_SETTINGS,
                             "tokens are drawn at temperature %g, under another seed at each start (%s, then %s), so "
                             "that no two starts can be compared: give CMD a --random-seed",
                             kl_take_temperature(server), start->settings.items[i].a, start->settings.items[i].b);
    return ERROR_NONE;
}

static enum error_code look_at_settings(struct kl_vary_all *all, struct kl_vary_start *start,
                                        const struct generate_server *server, struct error *err)
{
    const struct ab_read given = {.settings = all->given.settings}, here = {.settings = server->settings};
    if (start == &all->starts[KL_VARY_FIRST])
        return ERROR_NONE;
    ab_read_settings(&given, &here, &start->settings);
    if (start == &all->starts[KL_VARY_AGAIN]) {
        for (size_t i = 0; i < start->settings.count; i++)
            list_add(&all->drifting, start->settings.items[i].name);
        return check_seed(start, server, err);
    }
    start->resolved = vary_resolved(server, start->setting.name);
    return ERROR_NONE;
}

/* ---- one start ---- */

static enum error_code measure(struct stage *stage, struct kl_vary_all *all, struct kl_vary_start *start,
                               const char *name, struct error *err)
{
    struct endpoint endpoint = {0};
    struct kl_take take;
    struct kl_take_plan plan = all->plan->take;
    plan.progress = all->plan->show ? show_measuring : NULL;
    plan.context = stage;
    enum error_code code = endpoint_open(name, &endpoint, err);
    if (code != ERROR_NONE)
        return code;
    endpoint.wanted = is_wanted;
    code = look_at_settings(all, start, &endpoint.server, err);
    if (code == ERROR_NONE && start->setting.name != NULL && !has_arrived(all, start)) {
        start->state = KL_VARY_NO_EFFECT;
    } else if (code == ERROR_NONE) {
        code = kl_take(&endpoint, &plan, &take, err);
        if (code == ERROR_NONE) {
            code = keep(all, start, &take.report, err);
            kl_take_fini(&take);
        }
    }
    endpoint_fini(&endpoint);
    return code;
}

static enum error_code take_start(struct kl_vary_all *all, size_t index, struct error *err)
{
    struct kl_vary_start *start = &all->starts[index];
    struct stage stage = {.all = all, .start = start};
    struct held_run run = {0};
    char *name = run_name(all, index), *directory = memory_format("%s/run", all->folder);
    char *text = memory_format("%s/%s.log", all->folder, start->stem);
    const struct held_run_plan plan = {.name = name,
                                       .kind = settings_kind_name(SETTINGS_KIND_PLAIN),
                                       .directory = directory,
                                       .options = all->plan->options,
                                       .command = list_vector(&start->command),
                                       .text_path = text};
    enum error_code code = held_run_start(&plan, &run, err);
    if (code == ERROR_NONE)
        code = held_run_wait(&run, is_start_wanted, &stage, err);
    if (code == ERROR_NONE) {
        start->started = true;
        code = measure(&stage, all, start, name, err);
        if (code != ERROR_NONE && !held_run_is_alive(&run, NULL))
            error_prefix(err, "the server has ended meanwhile (%s)", text);
    }
    if (code != ERROR_NONE)
        start->status = held_run_status(&run, code);
    stop(&stage, &run);
    free(name);
    free(directory);
    free(text);
    return code;
}

static void read_all(struct kl_vary_all *all)
{
    struct kl_vary_variant *variants = memory_new((all->count + 1) * sizeof variants[0]);
    struct kl_vary vary = {
        .clean = all->starts[KL_VARY_FIRST].clean, .shifted = all->starts[KL_VARY_FIRST].shifted, .variants = variants};
    for (size_t i = KL_VARY_AGAIN; i < all->count; i++) {
        const struct kl_vary_start *start = &all->starts[i];
        struct kl_vary_variant variant = {
            .label = start->label, .state = start->state, .clean = true, .given_clean = true};
        for (int id = 0; id < KL_PATHS; id++) {
            const struct kl_vary_path *given = &all->starts[KL_VARY_FIRST].paths[id];
            /* clean without its dirty requests is not clean */
            bool is_blind = start->paths[id].lost > 0 && start->paths[id].fine;
            if (given->grade != KL_GRADE_NOT_MEASURED && start->paths[id].grade != KL_GRADE_NOT_MEASURED && !is_blind) {
                variant.given_clean = variant.given_clean && given->fine;
                variant.clean = variant.clean && start->paths[id].fine;
            }
            struct kl_vary_place *place = start->paths[id].restored ? &variant.restored : &variant.differs;
            if (place->path == NULL)
                *place = start->paths[id].place;
        }
        if (i == KL_VARY_AGAIN)
            vary.again = variant.differs.path != NULL ? variant.differs : variant.restored;
        else
            variants[vary.count++] = variant;
    }
    kl_vary_read(&vary, &all->reading);
    free(variants);
}

enum error_code kl_vary_measure(struct kl_vary_all *all, int *ret_status, struct error *err)
{
    for (size_t i = 0; i < all->count; i++) {
        struct kl_vary_start *start = &all->starts[i];
        struct error problem = ERROR_INIT;
        enum error_code code = interrupt_number() == 0 ? take_start(all, i, &problem) : ERROR_INTERRUPTED;
        if (code == ERROR_NONE)
            continue;
        if (code == ERROR_INTERRUPTED) {
            *ret_status = STATUS_INTERRUPTED;
            return error_set(err, code, "interrupted; the server was stopped, what was measured so far lies in %s",
                             all->folder);
        }
        start->state = KL_VARY_NOT_MEASURED;
        if (i >= KL_VARY_VARIANTS) {
            start->why = memory_format("%s%s", start->started ? "" : "did not start: ", problem.message);
            continue;
        }
        *ret_status = start->status;
        *err = problem;
        return error_prefix(err, "%s", start->label);
    }
    read_all(all);
    return ERROR_NONE;
}

void kl_vary_all_fini(struct kl_vary_all *all)
{
    for (size_t i = 0; i < all->count; i++) {
        struct kl_vary_start *start = &all->starts[i];
        free(start->label);
        free(start->stem);
        vary_setting_fini(&start->setting);
        list_fini(&start->command);
        free(start->why);
        free(start->resolved);
        ab_read_settings_fini(&start->settings);
        free(start->result);
        free(start->signature);
        for (int id = 0; id < KL_PATHS; id++)
            free(start->paths[id].why_not);
    }
    free(all->starts);
    free(all->folder);
    ab_read_fini(&all->given);
    list_fini(&all->drifting);
    kl_vary_reading_fini(&all->reading);
    *all = (struct kl_vary_all){0};
}
