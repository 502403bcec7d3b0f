#include "ctl/endpoint_model.h"

#include "base/memory.h"
#include "sys/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX = 16 << 20 };

/* The folder in which a model of the hub is kept; the caller's. NULL: no home is known. */
static char *hub_folder(void)
{
    const char *cache = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *user = getenv("HOME");
    if (cache != NULL && cache[0] != '\0')
        return memory_copy(cache);
    if (home != NULL && home[0] != '\0')
        return memory_format("%s/hub", home);
    return user != NULL && user[0] != '\0' ? memory_format("%s/.cache/huggingface/hub", user) : NULL;
}

/* "org/name" lies in models--org--name/snapshots/COMMIT, and refs/main names the commit. */
static char *hub_config(const char *model)
{
    char *folder = hub_folder(), *path = NULL;
    const char *slash = strchr(model, '/');
    struct buffer commit;
    buffer_init(&commit);
    if (folder != NULL && slash != NULL && strchr(slash + 1, '/') == NULL) {
        char *place = memory_format("%s/models--%.*s--%s", folder, (int)(slash - model), model, slash + 1);
        char *reference = memory_format("%s/refs/main", place);
        if (file_read(reference, 256, &commit, NULL) == ERROR_NONE)
            path =
                memory_format("%s/snapshots/%.*s/config.json", place, (int)strcspn(commit.data, " \r\n/"), commit.data);
        free(reference);
        free(place);
    }
    buffer_fini(&commit);
    free(folder);
    return path;
}

char *endpoint_model_read(struct generate_server *server)
{
    struct error err = ERROR_INIT;
    struct buffer config;
    const char *model = server->model_path != NULL ? server->model_path : "";
    char *path = model[0] == '/' ? memory_format("%s/config.json", model) : hub_config(model);
    char *note = NULL;
    if (path == NULL)
        return memory_format("config.json of %.200s was not found on this machine", model);
    buffer_init(&config);
    enum error_code code = file_read(path, CONFIG_MAX, &config, &err);
    if (code == ERROR_NONE)
        code = generate_server_read_model(config.data, config.length, server, &err);
    if (code != ERROR_NONE)
        note = memory_copy(err.message);
    buffer_fini(&config);
    free(path);
    return note;
}
