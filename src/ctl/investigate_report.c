#include "ctl/investigate_report.h"

#include "base/duration.h"
#include "base/list.h"

enum { LABEL_WIDTH = 14, STEP_COLUMNS = 4, PATH_COLUMNS = 7 };

static void print_list(const char *label, char *const *texts, struct output *out)
{
    for (; *texts != NULL; texts++) {
        output_pair(out, LABEL_WIDTH, label, OUTPUT_PLAIN, "%s", *texts);
        label = "";
    }
}

/* ---- the answer ---- */

static enum output_style style_of(const struct investigation_end *end)
{
    if (end->status == STATUS_DONE)
        return OUTPUT_GREEN;
    return end->condition == KL_CONDITION_REFUSED ? OUTPUT_YELLOW : OUTPUT_RED;
}

static void print_answer(const struct investigation *in, const struct investigation_end *end, struct output *out)
{
    output_pair(out, LABEL_WIDTH, "answer", style_of(end), "%s: %s", end->name, end->text);
    output_text(out, "\n");
    if (in->command != NULL)
        output_pair(out, LABEL_WIDTH, "server", OUTPUT_PLAIN, "%s", in->command);
    if (in->own.known && in->own.model != NULL)
        output_pair(out, LABEL_WIDTH, "", OUTPUT_DIM, "%s, SGLang %s, tp %u", in->own.model,
                    in->own.version != NULL ? in->own.version : "of unknown release", (unsigned)in->own.tp);
}

/* ---- the paths ---- */

static void add_grade(struct list *cells, const struct investigation_kl *kl, size_t id)
{
    bool measured = kl->known && kl->paths[id].grade != KL_GRADE_NOT_MEASURED;
    list_add(cells, kl->known ? kl_grade_word(kl->paths[id].grade) : "-");
    if (measured)
        list_add_format(cells, kl->paths[id].mean > 0 ? "%.1e" : "0", kl->paths[id].mean);
    else
        list_add(cells, "-");
    if (measured)
        list_add_format(cells, "%zu of %zu", kl->paths[id].beyond, kl->paths[id].tokens);
    else
        list_add(cells, "-");
}

static void print_paths(const struct investigation *in, struct output *out)
{
    static const char *const headings[PATH_COLUMNS] = {"PATH",      "OWN FLAGS", ">MEAN K3", ">BEYOND",
                                                       "OF A DUMP", ">MEAN K3",  ">BEYOND"};
    struct list cells = {0};
    if (!in->own.known && !in->dump.known)
        return;
    for (size_t id = 0; id < KL_PATHS; id++) {
        list_add(&cells, kl_path_word((enum kl_path_id)id));
        add_grade(&cells, &in->own, id);
        add_grade(&cells, &in->dump, id);
    }
    output_text(out, "\n");
    output_table(out, PATH_COLUMNS, headings, KL_PATHS, (const char *const *)list_vector(&cells), NULL);
    list_fini(&cells);
}

/* ---- the steps ---- */

/* Why one was not done stands among what was not measured. */
static void print_steps(const struct investigation *in, struct output *out)
{
    static const char *const headings[STEP_COLUMNS] = {"STEP", "STATE", ">TIME", "RESULT"};
    enum output_style styles[INVESTIGATION_STEPS];
    struct list cells = {0};
    for (int id = 0; id < INVESTIGATION_STEPS; id++) {
        const struct investigation_step *step = &in->steps[id];
        char time[DURATION_TEXT];
        list_add(&cells, investigation_step_word((enum investigation_step_id)id));
        list_add_format(&cells, "%s%s", investigation_state_word(step->state), step->taken_over ? " before" : "");
        list_add(&cells, step->took_ms > 0 ? duration_text(step->took_ms, time) : "");
        list_add(&cells, step->result != NULL ? step->result : "");
        styles[id] = step->state == INVESTIGATION_FAILED ? OUTPUT_RED
                     : step->state == INVESTIGATION_DONE ? OUTPUT_PLAIN
                                                         : OUTPUT_DIM;
    }
    output_text(out, "\n");
    output_table(out, STEP_COLUMNS, headings, INVESTIGATION_STEPS, (const char *const *)list_vector(&cells), styles);
    output_text(out, "\n");
    list_fini(&cells);
}

void investigate_report_text(const struct investigation *investigation, const struct investigation_end *end,
                             struct output *out)
{
    print_answer(investigation, end, out);
    print_paths(investigation, out);
    if (end->evidence[0] != NULL)
        output_text(out, "\n");
    print_list("evidence", end->evidence, out);
    print_steps(investigation, out);
    print_list("not measured", end->not_measured, out);
    output_text(out, "\n");
    print_list("next", end->next, out);
    if (investigation->directory != NULL)
        output_pair(out, LABEL_WIDTH, "results", OUTPUT_PLAIN, "%s", investigation->directory);
}
