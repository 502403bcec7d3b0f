#include "ctl/seal.h"
#include "ctl/show.h"

int seal_print(struct output *out, struct find *find, const struct json *seal, const char *schema)
{
    bool complete = false;
    if (json_get_bool(seal, "complete", &complete, NULL) != ERROR_NONE)
        complete = false;
    if (schema != NULL) {
        struct json *answer = json_object();
        json_set_string(answer, "schema", schema);
        for (const struct json *m = json_first(seal); m != NULL; m = json_next(m))
            json_set_child(answer, json_key(m), json_copy(m));
        output_json(out, answer);
        json_free(answer);
    } else {
        struct json *run = NULL;
        bool has_run = find_status(find, &run, NULL) == ERROR_NONE;
        show_seal(out, seal, has_run ? show_member(run, "dir") : "");
        json_free(run);
    }
    return complete ? STATUS_DONE : STATUS_INCOMPLETE;
}
