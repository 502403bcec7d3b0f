/* kldumpd: the daemon for machines that several people or terminals share. */
#include "config.h"
#include "base/error.h"
#include "loop/daemon.h"

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

int main(int argc, char **argv)
{
    if (argc == 1)
        return daemon_main(NULL);
    if (argc == 3 && strcmp(argv[1], "--rules") == 0)
        return daemon_main(argv[2]);
    if (argc == 2 && strncmp(argv[1], "--rules=", 8) == 0)
        return daemon_main(argv[1] + 8);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(help, stdout);
        return STATUS_DONE;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("kldumpd " PACKAGE_VERSION);
        return STATUS_DONE;
    }
    fprintf(stderr, "kldumpd: takes --rules FILE, --help or --version, not '%.80s'\n", argv[argc > 3 ? 3 : 1]);
    return STATUS_USAGE;
}
