/* kldumpd: the daemon for machines that several people or terminals share. */
#include "config.h"
#include "base/error.h"
#include "loop/daemon.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: kldumpd [--rules FILE]\n"
    "\n"
    "Serves 'kldumpctl start', 'list' and the rest in the foreground until SIGTERM or SIGINT. Runs go on without it\n"
    "and are found again when it comes back. Socket and records are in $KLDUMP_RUNTIME_DIR, else\n"
    "$RUNTIME_DIRECTORY (set by systemd), else $XDG_RUNTIME_DIR/kldump, else /tmp/kldump-UID. See kldumpd(8).\n"
    "\n"
    "  --rules FILE    the admin's rules, in place of " KLDUMP_SYSCONFDIR
    "/kldump/kldumpd.conf; read again at SIGHUP.\n"
    "                  See kldumpd.conf(5).\n";

/* `word` stands between the two. */
static int usage_error(const char *before, const char *word, const char *after)
{
    fprintf(stderr, "kldumpd: %s%.80s%s; usage: kldumpd [--rules FILE], 'kldumpd --help' says more\n", before, word,
            after);
    return STATUS_USAGE;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* *ret_rules: FILE; NULL without one. STATUS_DONE, or STATUS_USAGE after a message. */
static int read_arguments(int argc, char **argv, const char **ret_rules)
{
    const char *rules = NULL;
    for (int i = 1; i < argc; i++) {
        if (is_help(argv[i]) || strcmp(argv[i], "--version") == 0)
            return usage_error("'", argv[i], "' stands alone");
        bool apart = strcmp(argv[i], "--rules") == 0;
        if (!apart && strncmp(argv[i], "--rules=", 8) != 0 && argv[i][0] == '-')
            return usage_error("unknown option '", argv[i], "'");
        if (!apart && argv[i][0] != '-')
            return usage_error("'", argv[i], "' is one argument too many");
        if (rules != NULL)
            return usage_error("--rules is given twice", "", "");
        if (apart && i + 1 == argc)
            return usage_error("--rules needs a file after it", "", "");
        rules = apart ? argv[++i] : argv[i] + 8;
    }
    *ret_rules = rules;
    return STATUS_DONE;
}

int main(int argc, char **argv)
{
    const char *rules = NULL;
    if (argc == 2 && is_help(argv[1])) {
        fputs(help, stdout);
        return STATUS_DONE;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("kldumpd " PACKAGE_VERSION);
        return STATUS_DONE;
    }
    int status = read_arguments(argc, argv, &rules);
    return status == STATUS_DONE ? daemon_main(rules) : status;
}
