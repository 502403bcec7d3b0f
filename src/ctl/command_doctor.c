/* kldumpctl doctor [--json] [OPTIONS] [-- CMD...] */
#include "base/memory.h"
#include "ctl/command.h"
#include "ctl/doctor.h"
#include "ctl/options.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

/* In the order in which they are shown; those of a subject build on the ones before. */
static const struct {
    const char *name;
    doctor_check *check;
} checks[] = {
    {"programs", doctor_machine_programs},
    {"name", doctor_machine_name},
    {"command", doctor_server_command},
    {"python", doctor_server_python},
    {"sglang", doctor_server_version},
    {"settings", doctor_server_settings},
    {"port", doctor_server_port},
    {"rules", doctor_space_rules},
    {"folder", doctor_space_folder},
    {"filesystem", doctor_space_filesystem},
    {"space", doctor_space_bytes},
    {"inodes", doctor_space_inodes},
    {"cgroup", doctor_machine_cgroup},
    {"limits", doctor_machine_limits},
    {"shared-memory", doctor_machine_shared_memory},
    {"temporary", doctor_machine_temporary},
    {"address", doctor_network_address},
    {"exposure", doctor_network_exposure},
    {"gpu", doctor_machine_gpu},
    {"daemon", doctor_machine_daemon},
    {"left-runs", doctor_left_runs},
    {"left-processes", doctor_left_processes},
    {"left-cgroups", doctor_left_cgroups},
    {"left-shm", doctor_left_shared_memory},
    {"left-probes", doctor_left_probes},
};
enum { CHECKS = sizeof checks / sizeof checks[0], NAME_WIDTH = 15 };

static const struct {
    const char *name;
    enum output_style style;
} results[] = {[DOCTOR_PASS] = {"pass", OUTPUT_GREEN},
               [DOCTOR_WARN] = {"warn", OUTPUT_YELLOW},
               [DOCTOR_FAIL] = {"fail", OUTPUT_RED}};

static void print_finding(struct output *out, const char *name, const struct doctor_finding *finding)
{
    output_safe(out, results[finding->result].style, results[finding->result].name);
    output_text(out, "  ");
    output_pair(out, NAME_WIDTH, name, OUTPUT_PLAIN, "%s", finding->value);
    if (finding->advice[0] != '\0')
        output_pair(out, 6 + NAME_WIDTH, "", OUTPUT_BOLD, "-> %s", finding->advice);
}

static void print_sum(struct output *out, const struct doctor *doctor, const unsigned counts[])
{
    output_format(out, "\n%u pass, %u warn, ", counts[DOCTOR_PASS], counts[DOCTOR_WARN]);
    char *fails = memory_format("%u fail", counts[DOCTOR_FAIL]);
    output_safe(out, counts[DOCTOR_FAIL] > 0 ? OUTPUT_RED : OUTPUT_PLAIN, fails);
    free(fails);
    if (doctor->given.count == 0)
        output_text(out, ". Nothing was said about Python, SGLang, its settings and its port: put the server's\n"
                         "command behind ' -- '.");
    output_text(out, "\n");
}

static void add_json(struct json *array, const char *name, const struct doctor_finding *finding)
{
    struct json *one = json_append_object(array);
    json_set_string(one, "name", name);
    json_set_string(one, "result", results[finding->result].name);
    json_set_string(one, "value", finding->value);
    json_set_string(one, "advice", finding->advice[0] != '\0' ? finding->advice : NULL);
}

/* All checks; each is shown as soon as it is done. True when none failed. */
static bool examine(struct doctor *doctor, struct output *out, bool as_json)
{
    struct json *answer = json_object();
    json_set_string(answer, "schema", "kldump.doctor/1");
    struct json *array = json_set_array(answer, "checks");
    unsigned counts[DOCTOR_SKIP + 1] = {0};
    for (size_t i = 0; i < CHECKS; i++) {
        struct doctor_finding finding = {.result = DOCTOR_SKIP};
        checks[i].check(doctor, &finding);
        counts[finding.result]++;
        if (finding.result == DOCTOR_SKIP)
            continue;
        if (as_json) {
            add_json(array, checks[i].name, &finding);
        } else {
            print_finding(out, checks[i].name, &finding);
            output_flush(out, NULL);
        }
    }
    if (as_json)
        output_json(out, answer);
    else
        print_sum(out, doctor, counts);
    json_free(answer);
    return counts[DOCTOR_FAIL] == 0;
}

/* Without CMD the options are checked as if there were one. */
static enum error_code read_options(int argc, char **argv, const struct settings_texts *defaults,
                                    struct settings *settings, char ***ret_command, struct error *err)
{
    int rest = 0;
    bool has_end = false;
    for (int i = 0; i < argc; i++)
        has_end = has_end || strcmp(argv[i], "--") == 0;
    char **all = memory_new(((size_t)argc + 3) * sizeof *all);
    memcpy(all, argv, (size_t)argc * sizeof *all);
    all[argc] = (char *)"--";
    all[argc + 1] = (char *)"none";
    enum error_code code = options_read(has_end ? argc : argc + 2, all, defaults, settings, &rest, err);
    if (code == ERROR_NONE)
        *ret_command = has_end ? argv + rest : NULL;
    free(all);
    return code;
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    struct settings settings = {0};
    struct settings_texts defaults = {0};
    struct doctor_rules rules = {.problem = ERROR_INIT};
    struct doctor doctor;
    char **given = NULL;
    bool as_json = false;
    const struct command_option options[] = {{.name = "json", .flag = &as_json}, {0}};
    argc = command_take(command, options, argc - 1, ++argv);
    if (argc < 0)
        return STATUS_USAGE;
    if (admin_set_load(&rules.set, &rules.problem) == ERROR_NONE)
        admin_set_defaults(&rules.set, &defaults);
    enum error_code code = read_options(argc, argv, &defaults, &settings, &given, &err);
    bool fine = false;
    if (code == ERROR_NONE) {
        doctor_init(&doctor, &settings, given, &rules);
        fine = examine(&doctor, out, as_json);
        doctor_fini(&doctor);
    }
    settings_texts_fini(&defaults);
    admin_set_fini(&rules.set);
    if (code != ERROR_NONE)
        return command_usage_error(command, "%s", err.message);
    return fine ? STATUS_DONE : STATUS_NO;
}

const struct command command_doctor = {
    .name = "doctor",
    .usage = "doctor [--json] [OPTIONS] [-- CMD...]",
    .summary = "everything that would go wrong in a run, before it does",
    .help = "Examples:\n"
            "  kldumpctl doctor\n"
            "  kldumpctl doctor --dir dumps --floor 20G -- \\\n"
            "      python3 -m sglang.launch_server --model-path M --port 30000\n"
            "\n"
            "Give it the options and the command that 'run' would get. Each line says pass, warn or\n"
            "fail, what was seen, and what to do about it. Nothing is started, made or changed.\n"
            "The exit status is 0 when nothing fails, 1 otherwise.\n"
            "\n"
            "  --json                {\"schema\": \"kldump.doctor/1\", \"checks\": [{\"name\": ...,\n"
            "                        \"result\": \"pass|warn|fail\", \"value\": ..., \"advice\": ...}]}\n",
    .has_settings = true,
    .run = run,
};
