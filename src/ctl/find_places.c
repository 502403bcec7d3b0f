#include "ctl/find_places.h"
#include "base/memory.h"
#include "sys/runtime.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char system_folder[] = "/run/kldump";

/* Of root, written by nobody else, and open to more than its owner: what a kldumpd for all users makes. */
static bool is_shared(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == 0 && (status.st_mode & 022) == 0 &&
           (status.st_mode & 055) != 0;
}

static void add_daemon(struct find_places *places, const char *folder)
{
    char *path = memory_format("%s/control", folder);
    list_add(&places->daemons, path);
    free(path);
}

enum error_code find_places_get(struct find_places *ret_places, struct error *err)
{
    struct find_places places = {0};
    char *path = runtime_path();
    const char *given = getenv("KLDUMP_RUNTIME_DIR");
    bool is_given = given != NULL && *given != '\0';
    enum error_code code = ERROR_NONE;
    if (is_given && is_shared(path))
        places.shared = memory_copy(path);
    else
        code = runtime_directory(RUNTIME_LOOK, &places.own, err);
    if (code == ERROR_NOT_FOUND)
        code = ERROR_NONE;
    if (code == ERROR_NONE)
        add_daemon(&places, path);
    if (code == ERROR_NONE && !is_given && strcmp(path, system_folder) != 0) {
        add_daemon(&places, system_folder);
        if (is_shared(system_folder))
            places.shared = memory_copy(system_folder);
    }
    free(path);
    if (code != ERROR_NONE) {
        find_places_fini(&places);
        return code;
    }
    *ret_places = places;
    return ERROR_NONE;
}

void find_places_fini(struct find_places *places)
{
    free(places->own);
    free(places->shared);
    list_fini(&places->daemons);
    *places = (struct find_places){0};
}
