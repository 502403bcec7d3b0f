/* src/conf/rules.h: the admin's file, its sample, what differs, folders. With --sample: prints the sample file. */
#include "conf/rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum error_code parse(const char *file, size_t length, struct rules *rules, struct error *err)
{
    *rules = (struct rules){0};
    *err = (struct error)ERROR_INIT;
    return rules_parse("k.conf", file, length, rules, err);
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, text);
}

static struct rules take(const char *file)
{
    struct rules rules;
    struct error err;
    if (parse(file, strlen(file), &rules, &err) != ERROR_NONE)
        fail_msg("'%s': %s", file, err.message);
    return rules;
}

static void refuse(const char *file, size_t length, const char *message)
{
    struct rules rules, zero = {0};
    struct error err;
    assert_int_equal(parse(file, length, &rules, &err), ERROR_BAD_VALUE);
    if (strcmp(err.message, message) != 0)
        fail_msg("'%s' is not '%s'", err.message, message);
    assert_memory_equal(&rules, &zero, sizeof rules); /* untouched */
}

#define REFUSE(text, message) refuse(text, sizeof text - 1, message)

static void test_without_a_file(void **state)
{
    (void)state;
    struct rules rules;
    rules_init(&rules);
    assert_int_equal(rules.users.count + rules.groups.count + rules.folders.count, 0);
    assert_int_equal(rules.admin_groups.count, 1);
    assert_string_equal(rules.admin_groups.items[0], "kldump-admin");
    assert_int_equal(rules.runs_per_user, 64);
    assert_true(rules.floor.value == 0 && rules.worst_rate_bytes_per_s == 0 && rules.filesystem_count == 0);
    rules_fini(&rules);
    rules_fini(&rules);
    rules = take("");
    assert_int_equal(rules.runs_per_user, 64);
    rules_fini(&rules);
}

static void test_all_of_it(void **state)
{
    (void)state;
    struct rules rules = take("# of the machine\n"
                              "[access]\r\n"
                              "users = alice  bob\t1003\n"
                              "groups=team\n"
                              "admin_groups = ops wheel\n"
                              "; more\n"
                              "\n"
                              "[limits]\n"
                              "folders = /data/ /scratch/k\xc3\xa9\n"
                              "runs_per_user = 3\n"
                              "floor = 50G\n"
                              "worst_rate = 20G\n"
                              "[filesystem /data]\n"
                              "floor = 12.5%\n"
                              "[filesystem /mnt/a b/]\n"
                              "floor = 1T\n"
                              "worst_rate = 30G\n"
                              "[defaults]\n"
                              "start_timeout = 2h\n"
                              "dir = /data/x");
    assert_int_equal(rules.users.count, 3);
    assert_string_equal(rules.users.items[1], "bob");
    assert_string_equal(rules.users.items[2], "1003");
    assert_int_equal(rules.groups.count, 1);
    assert_int_equal(rules.admin_groups.count, 2);
    assert_string_equal(rules.admin_groups.items[0], "ops");
    assert_int_equal(rules.folders.count, 2);
    assert_string_equal(rules.folders.items[0], "/data");
    assert_string_equal(rules.folders.items[1], "/scratch/k\xc3\xa9");
    assert_int_equal(rules.runs_per_user, 3);
    assert_true(rules.floor.value == 50ull << 30 && !rules.floor.percent);
    assert_true(rules.worst_rate_bytes_per_s == 20ull << 30);
    assert_int_equal(rules.filesystem_count, 2);
    assert_string_equal(rules.filesystem[0].path, "/data");
    assert_true(rules.filesystem[0].floor.percent && rules.filesystem[0].floor.value == 12500);
    assert_true(rules.filesystem[0].worst_rate_bytes_per_s == 0);
    assert_string_equal(rules.filesystem[1].path, "/mnt/a b");
    assert_true(rules.filesystem[1].worst_rate_bytes_per_s == 30ull << 30);
    assert_string_equal(rules.defaults.text[SETTINGS_START_TIMEOUT], "2h");
    assert_string_equal(rules.defaults.origin[SETTINGS_START_TIMEOUT], "k.conf line 19");
    assert_string_equal(rules.defaults.text[SETTINGS_DIRECTORY], "/data/x");
    assert_int_equal(rules.line[RULES_USERS], 3);
    assert_int_equal(rules.line[RULES_FLOOR], 11);
    rules_fini(&rules);
    /* a section may come in parts */
    rules = take("[limits]\nfloor = 1G\n[access]\nusers = a\n[limits]\nruns_per_user = 1\n"
                 "[filesystem /d]\nfloor = 2G\n[filesystem /d/]\nworst_rate = 1G\n");
    assert_true(rules.floor.value == 1ull << 30 && rules.runs_per_user == 1 && rules.filesystem_count == 1);
    assert_true(rules.filesystem[0].worst_rate_bytes_per_s == 1ull << 30);
    rules_fini(&rules);
}

static void test_lines(void **state)
{
    (void)state;
    REFUSE("[limits]\nfloor 5G\n", "k.conf line 2: expected KEY = VALUE");
    REFUSE("[limits]\n=5G\n", "k.conf line 2: expected KEY = VALUE");
    REFUSE("[limits]\nfloor: 5G\n", "k.conf line 2: expected KEY = VALUE");
    REFUSE("[limits]\n floor = 5G\n", "k.conf line 2: is indented; begin every line in the first column");
    REFUSE("floor = 5G\n", "k.conf line 1: stands before any section; put a line [limits] above it");
    REFUSE("[limits]\nfloor = 5G ; five\n", "k.conf line 2: ' ;' inside a line; a comment needs a line of its own");
    REFUSE("[limits]\nfloor = 5G\t; five\n", "k.conf line 2: ' ;' inside a line; a comment needs a line of its own");
    REFUSE("[limits] # here\n", "k.conf line 1: expected a section such as [limits], and nothing behind it");
    REFUSE("[limits\nfloor = 1G\n", "k.conf line 1: expected a section such as [limits], and nothing behind it");
    REFUSE("[]\n", "k.conf line 1: expected a section such as [limits], and nothing behind it");
    REFUSE("\xef\xbb\xbf[limits]\nfloor = 1G\n",
           "k.conf line 1: begins with a byte order mark; save the file as UTF-8 without one");
    REFUSE("[limits]\nfloor = 1\xe7G\n", "k.conf line 2: byte 0xe7 in column 10 is not UTF-8");
    REFUSE("[limits]\nfloor = 1\0G\n", "k.conf line 2: holds a NUL byte");
    char large[RULES_FILE_MAX + 2];
    memset(large, '\n', sizeof large);
    refuse(large, sizeof large, "k.conf: larger than 64 KiB");
    memset(large, 'a', 181);
    large[181] = '\n';
    refuse(large, 182, "k.conf line 1: longer than 180 bytes");
}

static void test_sections_and_keys(void **state)
{
    (void)state;
    const char *sections = "; the sections are [access], [limits], [filesystem /PATH] and [defaults]";
    char message[300];
    static const char *const unknown[] = {"run", "limit", "Limits", "limits ", "filesystem", "access x", " access"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        char file[60];
        snprintf(file, sizeof file, "\n[%s]\nanything = 1\n", unknown[i]); /* its keys are no faults of their own */
        snprintf(message, sizeof message, "k.conf line 2: unknown section [%s]%s", unknown[i], sections);
        refuse(file, strlen(file), message);
    }
    REFUSE("[filesystem data]\nfloor = 1G\n", "k.conf line 1: filesystem: 'data' is no path that begins with /");
    REFUSE("[filesystem /a/../b]\n",
           "k.conf line 1: filesystem: '/a/../b' holds a part . or ..; write the path without");
    REFUSE("[limits]\nflor = 1G\n",
           "k.conf line 2: unknown key 'flor'; section [limits] has folders, runs_per_user, floor, worst_rate");
    REFUSE("[access]\nfloor = 1G\n",
           "k.conf line 2: unknown key 'floor'; section [access] has users, groups, admin_groups");
    REFUSE("[filesystem /d]\nusers = a\n",
           "k.conf line 2: unknown key 'users'; section [filesystem] has floor, worst_rate");
    REFUSE("[defaults]\nname = x\n", "k.conf line 2: unknown key 'name'");
    REFUSE("[limits]\nfloor = 1G\n\nfloor = 1G\n", "k.conf line 4: 'floor' was set in line 2 already");
    REFUSE("[filesystem /d]\nfloor = 1G\n[filesystem /e]\nfloor = 1G\n[filesystem /d/]\nfloor = 1G\n",
           "k.conf line 6: 'floor' was set in line 2 already");
    REFUSE("[defaults]\nsoft = 1G\nsoft = 1G\n", "k.conf line 3: 'soft' was set in line 2 already");
    struct buffer many;
    buffer_init(&many);
    for (int i = 0; i < RULES_FILESYSTEMS_MAX; i++)
        buffer_format(&many, "[filesystem /d%d]\n", i);
    struct rules rules = take(many.data);
    assert_int_equal(rules.filesystem_count, RULES_FILESYSTEMS_MAX);
    rules_fini(&rules);
    buffer_text(&many, "[filesystem /more]\nfloor = 1G\n");
    refuse(many.data, many.length, "k.conf line 65: more than 64 sections [filesystem PATH]");
    buffer_fini(&many);
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *section, *line, *part;
    } bad[] = {
        {"access", "users =", "users: is empty; leave the line out"},
        {"access", "users = a,b", "users: 'a,b' holds a comma; names are separated by blanks"},
        {"access", "groups = a/b", "groups: byte 0x2f"},
        {"access", "groups = a:b", "groups: byte 0x3a"},
        {"access", "admin_groups = a\x01", "admin_groups: byte 0x01"},
        {"limits", "folders =", "folders: is empty"},
        {"limits", "folders = /a data", "folders: 'data' is no path that begins with /"},
        {"limits", "folders = /a/./b", "folders: '/a/./b' holds a part . or .."},
        {"limits", "folders = /a/..", "folders: '/a/..' holds a part . or .."},
        {"limits", "folders = /a\x02", "folders: the path holds a control character"},
        {"limits", "runs_per_user = 0", "runs_per_user: 0 is out of bounds; at least 1 and at most 1024"},
        {"limits", "runs_per_user = 1025", "runs_per_user"},
        {"limits", "runs_per_user = -1", "runs_per_user"},
        {"limits", "runs_per_user = 3x", "runs_per_user"},
        {"limits", "runs_per_user =", "runs_per_user"},
        {"limits", "floor = 5", "floor"},
        {"limits", "floor = 0G", "floor: 0G is out of bounds"},
        {"limits", "floor = 91%", "floor: 91% is out of bounds"},
        {"limits", "floor = 1G # one", "floor"},
        {"limits", "worst_rate = 5%", "worst_rate"},
        {"limits", "worst_rate = 1K", "worst_rate: 1K is out of bounds; at least 1.0 MiB and at most 1.0 TiB"},
        {"filesystem /d", "floor = 0%", "floor: 0% is out of bounds"},
        {"filesystem /d", "worst_rate = 2T", "worst_rate: 2T is out of bounds"},
        {"defaults", "start_timeout = 10", "start_timeout"},
        {"defaults", "start_timeout = 1ms", "start_timeout: 1ms is out of bounds"},
        {"defaults", "dir = data", "dir: 'data' is relative; a path in the file must begin with /"},
        {"defaults", "floor = x", "floor"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char file[120], part[160];
        struct rules rules;
        struct error err;
        snprintf(file, sizeof file, "\n\n[%s]\n\n%s\n", bad[i].section, bad[i].line);
        snprintf(part, sizeof part, "k.conf line 5: %s", bad[i].part);
        if (parse(file, strlen(file), &rules, &err) != ERROR_BAD_VALUE)
            fail_msg("'%s' was taken", bad[i].line);
        assert_has(err.message, part);
    }
}

/* In the order of the file, whatever they are; what is right between them is no fault. */
static void test_all_faults_at_once(void **state)
{
    (void)state;
    REFUSE(
        "[limits]\nfloor = 95%\nrun = 1\nfolders = /a\n[limts]\nx = 1\n[defaults]\nsoft 1G\n",
        "k.conf line 2: floor: 95% is out of bounds; more than 0% and at most 90%; k.conf line 3: unknown key 'run'; "
        "section [limits] has folders, runs_per_user, floor, worst_rate; k.conf line 5: unknown section [limts]; the "
        "sections are [access], [limits], [filesystem /PATH] and [defaults]; k.conf line 8: expected KEY = VALUE");
    struct rules rules;
    struct error err;
    static const char many[] = "a\na\na\na\na\na\na\na\na\na\na\n";
    assert_int_equal(parse(many, sizeof many - 1, &rules, &err), ERROR_BAD_VALUE);
    assert_has(err.message, "k.conf line 8: expected KEY = VALUE; k.conf: 3 more faults");
}

static void test_differences(void **state)
{
    (void)state;
    static const char *const wanted[] = {
        "access.users: a -> a b",
        "access.admin_groups: kldump-admin -> ops",
        "limits.folders: none -> /x /y",
        "limits.runs_per_user: 64 -> 2",
        "limits.floor: 50G -> 102401M",
        "filesystem.floor of /data: 5% -> 12.500%",
        "filesystem.worst_rate of /old: 1500M -> none",
        "filesystem.floor of /new: none -> 1T",
        "defaults.soft: 1G -> 2G",
        "defaults.budget: 2G -> none",
        "defaults.stop_timeout: none -> 5s",
    };
    struct list lines = {0};
    struct rules before = take("[access]\nusers = a\n[limits]\nfloor = 50G\n[filesystem /data]\nfloor = 5%\n"
                               "[filesystem /old]\nworst_rate = 1500M\n[defaults]\nsoft = 1G\nbudget = 2G\n");
    struct rules after = take("[filesystem /new]\nfloor = 1T\n[access]\nusers = a b\nadmin_groups = ops\n[limits]\n"
                              "runs_per_user = 2\nfloor = 102401M\nfolders = /x /y/\n[filesystem /data]\n"
                              "floor = 12.5%\n[defaults]\nsoft = 2G\nstop_timeout = 5s\n");
    rules_difference(&before, &before, &lines);
    assert_int_equal(lines.count, 0);
    rules_difference(&before, &after, &lines);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0] && i < lines.count; i++)
        assert_string_equal(lines.items[i], wanted[i]);
    assert_int_equal(lines.count, sizeof wanted / sizeof wanted[0]);
    list_fini(&lines);
    rules_fini(&before);
    rules_fini(&after);
}

static void test_folders(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct rules rules = take("");
    assert_int_equal(rules_allow_folder(&rules, "/anywhere", NULL), ERROR_NONE);
    rules_fini(&rules);
    rules = take("[limits]\nfolders = /data /scratch/k/\n");
    static const char *const good[] = {"/data", "/data/", "/data/x", "/data/x/../y", "/scratch/k", "/scratch/k/a"};
    static const char *const bad[] = {"/",        "/datax",    "/data2/x",    "/dat",
                                      "/scratch", "/scratch/", "/scratch/kk", "data"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(rules_allow_folder(&rules, good[i], NULL), ERROR_NONE);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(rules_allow_folder(&rules, bad[i], NULL), ERROR_FORBIDDEN);
    assert_int_equal(rules_allow_folder(&rules, "/home/a", &err), ERROR_FORBIDDEN);
    assert_string_equal(err.message, "dump folder /home/a is not below a folder that the admin's rule 'folders' allows "
                                     "(/data /scratch/k); give a --dir below one of those, or ask "
                                     "the admin to add its folder to 'folders'");
    rules_fini(&rules);
    rules = take("[limits]\nfolders = /\n");
    assert_int_equal(rules_allow_folder(&rules, "/anywhere", NULL), ERROR_NONE);
    rules_fini(&rules);
}

/* As it is it changes nothing; without the marks every line of it is a section or a known key. */
static void test_sample(void **state)
{
    (void)state;
    struct buffer sample, live;
    struct rules rules;
    struct error err;
    struct list lines = {0};
    buffer_init(&sample);
    buffer_init(&live);
    rules_sample(&sample);
    struct rules none = take(""), taken = take(sample.data);
    rules_difference(&none, &taken, &lines);
    assert_int_equal(lines.count, 0);
    rules_fini(&none);
    rules_fini(&taken);
    size_t keys = 0;
    for (const char *line = sample.data; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t length = strcspn(line, "\n");
        bool is_key = line[0] == '#' && line[1] != ' ';
        assert_in_range(length, 0, 100);
        keys += is_key && line[1] != '[';
        if (is_key || line[0] == '[')
            buffer_format(&live, "%.*s\n", (int)length - is_key, line + is_key);
    }
    size_t settings = 0;
    for (int id = 0; id < SETTINGS_COUNT; id++)
        settings += id != SETTINGS_NAME && id != SETTINGS_KIND && id != SETTINGS_CONFIG; /* those without a key */
    assert_int_equal(keys, RULES_COUNT + settings);
    parse(live.data, live.length, &rules, &err);
    assert_null(strstr(err.message, "unknown")); /* values may be forms such as SIZE */
    assert_null(strstr(err.message, "already"));
    assert_has(err.message, "'SIZE|PCT' is not a size");
    buffer_fini(&sample);
    buffer_fini(&live);
}

static void test_sample_is_what_is_installed(void **state)
{
    (void)state;
    struct buffer sample;
    const char *source = getenv("srcdir");
    char path[4096], *text = calloc(1, RULES_FILE_MAX);
    snprintf(path, sizeof path, "%s/conf/kldumpd.conf", source != NULL ? source : ".");
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("%s cannot be opened", path);
    assert_non_null(text);
    text[fread(text, 1, RULES_FILE_MAX - 1, file)] = '\0';
    fclose(file);
    buffer_init(&sample);
    rules_sample(&sample);
    if (strcmp(sample.data, text) != 0)
        fail_msg("%s is not what the tables say; make it anew: tests/unit/test_rules --sample", path);
    buffer_fini(&sample);
    free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_file), cmocka_unit_test(test_all_of_it),
        cmocka_unit_test(test_lines),          cmocka_unit_test(test_sections_and_keys),
        cmocka_unit_test(test_values),         cmocka_unit_test(test_all_faults_at_once),
        cmocka_unit_test(test_differences),    cmocka_unit_test(test_folders),
        cmocka_unit_test(test_sample),         cmocka_unit_test(test_sample_is_what_is_installed),
    };
    if (argc == 2 && strcmp(argv[1], "--sample") == 0) {
        struct buffer sample;
        buffer_init(&sample);
        rules_sample(&sample);
        fputs(sample.data, stdout);
        buffer_fini(&sample);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
