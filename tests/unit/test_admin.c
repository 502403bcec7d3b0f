/* src/sys/admin.h and admin_set.h: files of the wrong owner, names, who may do what, filesystems. */
#include "sys/admin_names.h"
#include "sys/admin_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[100];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/kldump-admin-XXXXXX");
    unsetenv("KLDUMP_RULES");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/k.conf", folder);
    return 0;
}

static int tear_down(void **state)
{
    char command[200];
    (void)state;
    static const char *const names[] = {"k.conf", "link", "top/k.conf", "top", "other.conf", "d/e", "d", "l"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(command, sizeof command, "%s/%s", folder, names[i]);
        remove(command);
    }
    return rmdir(folder);
}

static void write_to(const char *file, const char *text)
{
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
    assert_int_equal(chmod(file, 0644), 0);
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, text);
}

static struct admin load(const char *text)
{
    struct admin admin;
    struct error err = ERROR_INIT;
    write_to(path, text);
    if (admin_load(path, &admin, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
    return admin;
}

static void refuse(const char *file, enum error_code code, const char *part)
{
    struct admin admin = {.user_count = 77};
    struct error err = ERROR_INIT;
    if (admin_load(file, &admin, &err) != code)
        fail_msg("%s: code %d, '%s'", file, err.code, err.message);
    assert_has(err.message, part);
    assert_int_equal(admin.user_count, 77); /* untouched */
    assert_int_equal(admin_load_limits(file, &admin, &err), code);
}

static void test_missing(void **state)
{
    (void)state;
    struct admin admin;
    assert_has(admin_path(), "/kldump/kldumpd.conf");
    if (access(admin_path(), F_OK) != 0) { /* the machine may have one */
        assert_int_equal(admin_load(NULL, &admin, NULL), ERROR_NONE);
        assert_null(admin.path);
        assert_int_equal(admin_floor_bytes(&admin, 1, 1000, NULL), 0);
        assert_int_equal(admin.rules.runs_per_user, 64);
        admin_fini(&admin);
        admin_fini(&admin);
    }
    refuse(path, ERROR_NOT_FOUND, path);
    refuse("k.conf", ERROR_BAD_VALUE, "'k.conf' is no absolute path");
    refuse(folder, ERROR_FORMAT, folder);
}

static void test_writers(void **state)
{
    (void)state;
    char top[100], below[100], link[100];
    struct admin admin;
    snprintf(top, sizeof top, "%s/top", folder);
    snprintf(below, sizeof below, "%s/top/k.conf", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(mkdir(top, 0755), 0);
    write_to(below, "");
    assert_int_equal(symlink(below, link), 0);
    assert_int_equal(admin_load(link, &admin, NULL), ERROR_NONE);
    admin_fini(&admin);
    chmod(below, 0664);
    refuse(below, ERROR_FORBIDDEN,
           "k.conf can be written by others (mode 0664); no rules are taken from it: chmod go-w");
    chmod(below, 0646);
    refuse(link, ERROR_FORBIDDEN, "mode 0646");
    chmod(below, 0600);
    chmod(top, 0775);
    refuse(below, ERROR_FORBIDDEN, "/top can be written by others (mode 0775)");
    refuse(link, ERROR_FORBIDDEN, "/top can be written by others (mode 0775)"); /* also through a link */
    chmod(top, 01777); /* as /tmp: nobody can replace another's file in it */
    assert_int_equal(admin_load(below, &admin, NULL), ERROR_NONE);
    admin_fini(&admin);
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(below, 4711, 0), 0);
    refuse(below, ERROR_FORBIDDEN, "k.conf belongs to uid 4711; rules are taken from root only");
    assert_int_equal(chown(below, 0, 0), 0);
    assert_int_equal(chown(top, 4711, 0), 0);
    refuse(below, ERROR_FORBIDDEN, "/top belongs to uid 4711");
    refuse(link, ERROR_FORBIDDEN, "/top belongs to uid 4711");
}

static void test_names(void **state)
{
    (void)state;
    struct admin admin =
        load("[access]\nusers = root 4711\ngroups = root 4712 4294967294\nadmin_groups = root nobody-has-this\n");
    assert_int_equal(admin.user_count, 2);
    assert_int_equal(admin.users[0], 0);
    assert_int_equal(admin.users[1], 4711);
    assert_int_equal(admin.group_count, 3);
    assert_int_equal(admin.groups[2], 4294967294u);
    assert_int_equal(admin.admin_group_count, 1); /* one that does not exist has no members */
    assert_string_equal(admin.path, path);
    admin_fini(&admin);
    write_to(path, "\n[access]\nusers = root kldump-nobody-1 4294967295\n\ngroups = kldump-nobody-2\n");
    struct error err = ERROR_INIT;
    assert_int_equal(admin_load(path, &admin, &err), ERROR_BAD_VALUE);
    assert_has(err.message, "k.conf line 3: there is no user 'kldump-nobody-1'; ");
    assert_has(err.message, "k.conf line 3: there is no user '4294967295'; ");
    assert_has(err.message, "k.conf line 5: there is no group 'kldump-nobody-2'");
    assert_int_equal(admin_load_limits(path, &admin, NULL), ERROR_NONE); /* a guard asks nobody */
    admin_fini(&admin);
    write_to(path, "[limits]\nfloor = x\n");
    refuse(path, ERROR_BAD_VALUE, "k.conf line 2: floor");
}

static const gid_t none[] = {4720}, team[] = {4720, 4712}, ops[] = {4713};
static const struct admin_user root_user = {0, 0, NULL, 0}, alice = {4701, 4701, none, 1}, bob = {4702, 4702, none, 1},
                               carol = {4703, 4703, team, 2}, dave = {4704, 4704, ops, 1}, erin = {4705, 4712, NULL, 0};

static void test_allowed(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct admin admin = load("[limits]\nfloor = 1G\n");
    assert_int_equal(admin_allow(&admin, &bob, NULL), ERROR_NONE); /* with neither users nor groups: everybody */
    admin_fini(&admin);
    admin = load("[access]\nusers = 4701\ngroups = 4712\nadmin_groups = 4713\n");
    const struct admin_user *good[] = {&root_user, &alice, &carol, &dave, &erin};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(admin_allow(&admin, good[i], NULL), ERROR_NONE);
    assert_int_equal(admin_allow(&admin, &bob, &err), ERROR_FORBIDDEN);
    assert_has(err.message, "uid 4702 may not use this kldumpd: [access] of /tmp/kldump-admin-");
    assert_has(err.message, "allows users 4701, groups 4712, and admins");
    admin_fini(&admin);
    admin = load("[access]\ngroups = 4712\n");
    assert_int_equal(admin_allow(&admin, &alice, &err), ERROR_FORBIDDEN);
    assert_has(err.message, "allows users none, groups 4712");
    admin_fini(&admin);
}

static void test_control(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct admin admin = load("[access]\nadmin_groups = 4713\n");
    assert_true(admin_is_admin(&admin, &root_user) && admin_is_admin(&admin, &dave));
    assert_false(admin_is_admin(&admin, &alice) || admin_is_admin(&admin, &carol));
    const struct admin_user *good[] = {&root_user, &alice, &dave};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(admin_may_control(&admin, good[i], 4701, "alice", "stop", "r", NULL), ERROR_NONE);
    assert_int_equal(admin_may_control(&admin, &bob, 4701, "alice", "stop", "r", &err), ERROR_FORBIDDEN);
    assert_string_equal(err.message, "stop of run r needs its owner alice, root or a member of 4713; you are uid 4702");
    assert_int_equal(admin_may_control(&admin, &bob, 4701, NULL, "logs", "r", &err), ERROR_FORBIDDEN);
    assert_has(err.message, "its owner uid 4701, root");
    admin_fini(&admin);
}

static void test_filesystems(void **state)
{
    (void)state;
    enum { GIB = 1 << 30 };
    struct stat here, proc;
    struct error err = ERROR_INIT;
    const char *rule = NULL;
    char text[600];
    assert_int_equal(stat(folder, &here), 0);
    assert_int_equal(stat("/proc", &proc), 0);
    snprintf(text, sizeof text,
             "[limits]\nfloor = 1G\nworst_rate = 20G\n[filesystem %s]\nfloor = 10%%\n[filesystem /proc]\n"
             "worst_rate = 30G\n[filesystem /nonexistent/x]\nfloor = 90%%\n",
             folder);
    struct admin admin = load(text);
    assert_true(admin_floor_bytes(&admin, here.st_dev, 100ull * GIB, &rule) == 10ull * GIB);
    assert_has(rule, "[filesystem /tmp/kldump-admin-");
    assert_has(rule, "] of /tmp/kldump-admin-");
    assert_true(admin_floor_bytes(&admin, here.st_dev, 5ull * GIB, &rule) == GIB / 2); /* in place of [limits] */
    assert_true(admin_floor_bytes(&admin, proc.st_dev, 5ull * GIB, &rule) == GIB);
    snprintf(text, sizeof text, "[limits] of %s", path);
    assert_string_equal(rule, text);
    assert_true(admin_floor_bytes(&admin, 0, 5ull * GIB, NULL) == GIB); /* a path that is not there is no filesystem */
    assert_true(admin_worst_rate(&admin, here.st_dev) == 20ull * GIB);
    assert_true(admin_worst_rate(&admin, proc.st_dev) == 30ull * GIB);
    admin_fini(&admin);
    /* two sections for one filesystem: the stricter */
    snprintf(text, sizeof text, "[filesystem %s]\nfloor = 2G\n[filesystem %s/k.conf]\nfloor = 10%%\n", folder, folder);
    admin = load(text);
    assert_true(admin_floor_bytes(&admin, here.st_dev, 10ull * GIB, &rule) == 2ull * GIB);
    assert_true(admin_floor_bytes(&admin, here.st_dev, 100ull * GIB, &rule) == 10ull * GIB);
    assert_has(rule, "/k.conf] of ");
    assert_true(admin_floor_bytes(&admin, proc.st_dev, GIB, &rule) == 0 && rule == NULL);
    admin_fini(&admin);
    (void)err;
}

static void test_folders_through_links(void **state)
{
    (void)state;
    char text[300], real[100], link[100];
    snprintf(real, sizeof real, "%s/d", folder);
    snprintf(link, sizeof link, "%s/l", folder);
    assert_int_equal(mkdir(real, 0755), 0);
    assert_int_equal(symlink("d", link), 0);
    snprintf(text, sizeof text, "[limits]\nfolders = %s\n", link);
    struct admin admin = load(text);
    snprintf(text, sizeof text, "%s/x", real);
    assert_int_equal(rules_allow_folder(&admin.rules, text, NULL), ERROR_NONE);
    assert_int_equal(rules_allow_folder(&admin.rules, folder, NULL), ERROR_FORBIDDEN);
    admin_fini(&admin);
}

/* The machine's file and that of KLDUMP_RULES: of both the stricter. */
static void test_set(void **state)
{
    (void)state;
    struct admin_set set;
    struct error err = ERROR_INIT;
    struct settings_texts texts = {0};
    struct space_rule rules[ADMIN_SET_MAX];
    if (access(admin_path(), F_OK) == 0)
        skip();
    write_to(path, "[limits]\nfloor = 3G\nfolders = /data\n[defaults]\nsoft = 7G\nbudget = 1G\n");
    assert_int_equal(admin_set_load(&set, &err), ERROR_NONE);
    assert_int_equal(set.count, 1);
    admin_set_fini(&set);
    setenv("KLDUMP_RULES", path, 1);
    assert_int_equal(admin_set_load(&set, &err), ERROR_NONE);
    assert_int_equal(set.count, 2);
    texts.text[SETTINGS_BUDGET] = strdup("2G");
    texts.origin[SETTINGS_BUDGET] = strdup("c.conf line 2");
    admin_set_defaults(&set, &texts);
    assert_string_equal(texts.text[SETTINGS_SOFT], "7G");
    assert_string_equal(texts.text[SETTINGS_BUDGET], "2G"); /* the user's wins */
    assert_true(texts.is_default[SETTINGS_SOFT] && !texts.is_default[SETTINGS_BUDGET]);
    settings_texts_fini(&texts);
    admin_set_space_rules(&set, 1, 1000, rules);
    assert_true(rules[0].floor.value == 0 && rules[1].floor.value == 3ull << 30);
    assert_int_equal(admin_set_allow_folder(&set, "/data/x", NULL), ERROR_NONE);
    assert_int_equal(admin_set_allow_folder(&set, "/home", &err), ERROR_FORBIDDEN);
    assert_has(err.message, path);
    admin_set_fini(&set);
    write_to(path, "floor\n");
    assert_int_equal(admin_set_load(&set, &err), ERROR_BAD_VALUE);
    assert_has(err.message, "KLDUMP_RULES: ");
    assert_has(err.message, "line 1");
    setenv("KLDUMP_RULES", "/nonexistent/rules", 1);
    assert_int_equal(admin_set_load(&set, &err), ERROR_NOT_FOUND);
    assert_has(err.message, "/nonexistent/rules");
    unsetenv("KLDUMP_RULES");
}

static void test_name_of_a_user(void **state)
{
    char text[64];
    (void)state;
    assert_true(admin_names_user(0, text, sizeof text));
    assert_string_equal(text, "root");
    assert_false(admin_names_user(4009999999u, text, sizeof text));
    assert_string_equal(text, "4009999999");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_missing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_writers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_allowed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_control, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_filesystems, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folders_through_links, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_set, set_up, tear_down),
        cmocka_unit_test(test_name_of_a_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
