/* Writes the reports of investigations made by hand into a folder: NAME.html, NAME.json, and as text for 80 columns and
 * none. test_investigate_reports.py looks at them, and so may you: investigate_samples FOLDER. */
#include "analysis/investigation_html.h"
#include "base/memory.h"
#include "ctl/investigate_report.h"
#include "investigation_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    enum world_reading own, dump;
    const char *kind;
} samples[] = {
    {"clean", WORLD_CLEAN, WORLD_UNKNOWN, NULL},
    {"operator", WORLD_OPERATOR, WORLD_OPERATOR, "op"},
    {"both", WORLD_BOTH, WORLD_BOTH, "op"},
    {"graph", WORLD_DECODE, WORLD_CLEAN, NULL},
    {"decode", WORLD_DECODE, WORLD_DECODE, "op+cache"},
    {"restore", WORLD_RESTORE, WORLD_RESTORE, "none"},
    {"other", WORLD_DECODE, WORLD_OPERATOR, "op"},
    {"refused", WORLD_REFUSED, WORLD_UNKNOWN, NULL},
    {"unproven", WORLD_OPERATOR, WORLD_OPERATOR, "kind of tomorrow"},
    {"stopped", WORLD_OPERATOR, WORLD_UNKNOWN, NULL},
    {"failed", WORLD_UNKNOWN, WORLD_UNKNOWN, NULL},
    {"hostile", WORLD_OPERATOR, WORLD_OPERATOR, "op"},
};

static void write_file(const char *folder, const char *name, const char *ending, const struct buffer *text)
{
    char *path = memory_format("%s/%s.%s", folder, name, ending);
    FILE *file = fopen(path, "we");
    if (file == NULL || fwrite(text->data, 1, text->length, file) != text->length || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    free(path);
}

static void set(char **text, const char *value)
{
    free(*text);
    *text = memory_copy(value);
}

static void set_steps(struct investigation *in)
{
    static const uint64_t took_ms[INVESTIGATION_STEPS] = {900, 754000, 1201000, 250, 388000, 61300, 4100, 12800};
    static const char *const results[INVESTIGATION_STEPS] = {"doctor.json", "kl-own.json",     "kl-dump.json",
                                                             "ab.json",     "invariance.json", "capture.json",
                                                             "check.json",  "diff.json"};
    for (size_t id = 0; id < INVESTIGATION_STEPS; id++) {
        struct investigation_step *step = &in->steps[id];
        if (step->state != INVESTIGATION_DONE)
            continue;
        step->took_ms = took_ms[id];
        step->taken_over = id < 2;
        set(&step->result, results[id]);
        set(&step->command, "kldumpctl kl inv-own --prompts prompts.jsonl --out kl-own.json");
    }
}

static void set_axes(struct investigation *in)
{
    static const struct investigation_axis axes[] = {
        {"prefill", "changed", 2, false, 1, 5, "model.layers.0.self_attn.qkv_proj", "op", NULL},
        {"extend", "changed", 1, true, 0, 4, NULL, NULL, NULL},
        {"decode", "unchanged", 0, false, 0, 3, NULL, NULL, "no room for a batch of 16"},
    };
    in->invariance_known = true;
    in->invariance_most = 8;
    in->invariance_condition = memory_copy("broken");
    in->axis_count = sizeof axes / sizeof axes[0];
    in->axes = memory_new(sizeof axes);
    memcpy(in->axes, axes, sizeof axes);
    for (size_t i = 0; i < in->axis_count; i++) {
        struct investigation_axis *axis = &in->axes[i];
        axis->word = memory_copy(axis->word);
        axis->state = memory_copy(axis->state);
        axis->module = axis->module != NULL ? memory_copy(axis->module) : NULL;
        axis->kind = axis->kind != NULL ? memory_copy(axis->kind) : NULL;
        axis->why_not = axis->why_not != NULL ? memory_copy(axis->why_not) : NULL;
    }
}

static void stop(struct investigation *in, const char *name)
{
    bool failed = strcmp(name, "failed") == 0;
    for (size_t id = failed ? INVESTIGATION_KL_OWN : INVESTIGATION_KL_DUMP; id < INVESTIGATION_STEPS; id++)
        in->steps[id].state = strcmp(name, "clean") == 0 ? INVESTIGATION_NOT_NEEDED : INVESTIGATION_NOT_REACHED;
    if (!failed)
        return;
    in->steps[INVESTIGATION_KL_OWN].state = INVESTIGATION_FAILED;
    in->steps[INVESTIGATION_KL_OWN].status = STATUS_NOT_ARMED;
    set(&in->steps[INVESTIGATION_KL_OWN].why, "the server ended with status 1: torch.OutOfMemoryError: CUDA out of "
                                              "memory (the rest is in kl-own.log)");
}

/* Names and texts as a damaged or hostile server may have given them. */
static void spoil(struct investigation *in)
{
    char name[5000];
    memset(name, 'n', sizeof name);
    memcpy(name, "</style><script>alert('module')</script>\033[2J\n\"&", 46);
    name[sizeof name - 1] = '\0';
    set(&in->diff.module, name);
    set(&in->diff.what, "<b onload=x>\"'&\033[2J");
    set(&in->own.text, "</p><img src=x onerror=alert(1)>\a");
    set(&in->own.model, "<script>alert('model')</script>");
    set(&in->command, "python3 -m x '<script>' \xff\xfe \033]0;title\a");
    set(&in->steps[INVESTIGATION_DIFF].result, "javascript:alert(1)\"><script>");
    set(&in->steps[INVESTIGATION_DIFF].why, "<i>why\tnot</i>");
    set(&in->axes[0].word, "<u>axis");
    set(&in->axes[0].module, name);
    list_vector_free(in->diff.blind);
    in->diff.blind = investigation_world_texts("<blind>\r\nInjected: line");
}

static void make(size_t i, struct investigation *ret_in)
{
    struct investigation in = investigation_world(samples[i].own, samples[i].dump, samples[i].kind);
    in.name = memory_copy("inv-calm-fox-12");
    in.directory = memory_copy("/data/kldump-inv-calm-fox-12");
    in.command = memory_copy("python3 -m sglang.launch_server --model-path /models/llama-8b --tp 2");
    if (in.own.known) {
        in.own.model = memory_copy("/models/llama-8b");
        in.own.version = memory_copy("0.5.23");
    }
    if (!in.dump.known)
        stop(&in, samples[i].name);
    else
        in.settings = investigation_world_texts("disable_cuda_graph: false under your flags, true in a dump");
    set_steps(&in);
    if (samples[i].kind != NULL)
        set_axes(&in);
    if (in.diff.known)
        in.diff.page = memory_copy("diff.html");
    if (strcmp(samples[i].name, "hostile") == 0)
        spoil(&in);
    *ret_in = in;
}

static void write_all(const char *folder, size_t i)
{
    struct investigation in;
    struct investigation_end end;
    struct buffer text;
    struct output out;
    make(i, &in);
    investigation_conclude(&in, &end);
    buffer_init(&text);
    investigation_html(&in, &end, &text);
    write_file(folder, samples[i].name, "html", &text);
    buffer_clear(&text);
    struct json *json = investigate_report_json(&in, &end);
    json_print(json, &text);
    write_file(folder, samples[i].name, "json", &text);
    json_free(json);
    buffer_fini(&text);
    output_init(&out, STDOUT_FILENO);
    out.colour = false;
    investigate_report_text(&in, &end, &out);
    write_file(folder, samples[i].name, "txt", &out.pending);
    output_fini(&out);
    investigation_end_fini(&end);
    investigation_fini(&in);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: investigate_samples FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
        write_all(argv[1], i);
    return 0;
}
