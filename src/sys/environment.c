#include "sys/environment.h"

#include <stddef.h>

/* sd_notify(3), sd_listen_fds(3) and "Environment variables" of systemd.exec(5). */
static const struct {
    enum environment_origin least; /* removed from this origin on */
    const char *name;
} environment_denied[] = {
    {ENVIRONMENT_OURS, "NOTIFY_SOCKET"},
    {ENVIRONMENT_OURS, "WATCHDOG_USEC"},
    {ENVIRONMENT_OURS, "WATCHDOG_PID"},
    {ENVIRONMENT_OURS, "LISTEN_FDS"},
    {ENVIRONMENT_OURS, "LISTEN_PID"},
    {ENVIRONMENT_OURS, "LISTEN_PIDFDID"},
    {ENVIRONMENT_OURS, "LISTEN_FDNAMES"},
    {ENVIRONMENT_OURS, "FDSTORE"},
    {ENVIRONMENT_OURS, "MAINPID"},
    {ENVIRONMENT_CLIENT, "MANAGERPID"},
    {ENVIRONMENT_CLIENT, "MANAGERPIDFDID"},
    {ENVIRONMENT_CLIENT, "INVOCATION_ID"},
    {ENVIRONMENT_CLIENT, "JOURNAL_STREAM"},
    {ENVIRONMENT_CLIENT, "SYSTEMD_EXEC_PID"},
    {ENVIRONMENT_CLIENT, "CREDENTIALS_DIRECTORY"},
    {ENVIRONMENT_CLIENT, "RUNTIME_DIRECTORY"},
    {ENVIRONMENT_CLIENT, "STATE_DIRECTORY"},
    {ENVIRONMENT_CLIENT, "CACHE_DIRECTORY"},
    {ENVIRONMENT_CLIENT, "LOGS_DIRECTORY"},
    {ENVIRONMENT_CLIENT, "CONFIGURATION_DIRECTORY"},
    {ENVIRONMENT_CLIENT, "MEMORY_PRESSURE_WATCH"},
    {ENVIRONMENT_CLIENT, "MEMORY_PRESSURE_WRITE"},
    {ENVIRONMENT_CLIENT, "KLDUMP_RUNTIME_DIR"},
    {ENVIRONMENT_CLIENT, "KLDUMP_RULES"},
    {ENVIRONMENT_CLIENT, "KLDUMP_NO_CGROUP"},
    {ENVIRONMENT_CLIENT, "KLDUMP_RUN"},
    {ENVIRONMENT_CLIENT, "KLDUMP_RUN_COOKIE"},
    {ENVIRONMENT_CLIENT, "KLDUMP_EXP"},
    {ENVIRONMENT_CLIENT, "KLDUMP_URL"},
    {ENVIRONMENT_OURS, "KLDUMP_API_KEY"},
    {ENVIRONMENT_OURS, "KLDUMP_ADMIN_API_KEY"},
    {ENVIRONMENT_CLIENT, "KLDUMP_SGLANG_ARGS"},
};

void environment_clean(struct list *environment, enum environment_origin origin)
{
    for (size_t i = 0; i < sizeof environment_denied / sizeof environment_denied[0]; i++)
        if (environment_denied[i].least <= origin)
            list_environment_unset(environment, environment_denied[i].name);
}
