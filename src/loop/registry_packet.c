/* What a packet says, believed as little as possible. */
#include "base/buffer.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/registry_private.h"
#include "sys/passing.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

const struct json_limits registry_packet_limits = {REGISTRY_PACKET_MAX, JSON_DEPTH, REGISTRY_PACKET_VALUES};

/* Of a run object what others rely on is not the guard's to say. */
static struct json *true_run(const struct json *said, const struct registry_entry *entry, const char *name)
{
    struct json *run = json_copy(said);
    json_set_string(run, "name", name);
    json_set_u64(run, "uid", entry->uid);
    json_set_u64(run, "guard_pid", (uint64_t)entry->pid);
    return run;
}

static enum error_code parse(const char *bytes, size_t length, struct json **ret_packet, const struct json **ret_run,
                             struct error *err)
{
    struct json *packet = NULL;
    enum error_code code = json_parse(bytes, length, registry_packet_limits, &packet, err);
    if (code == ERROR_NONE)
        code = json_get_object(packet, "run", ret_run, err);
    if (code == ERROR_NONE) {
        *ret_packet = packet;
        return ERROR_NONE;
    }
    json_free(packet);
    error_prefix(err, "a packet of the register");
    return err->code = ERROR_PROTOCOL;
}

enum error_code registry_packet_first(const char *bytes, size_t length, struct registry_entry *entry,
                                      struct json **ret_run, struct error *err)
{
    struct json *packet = NULL;
    const struct json *run;
    const char *name;
    uint64_t version;
    enum error_code code = parse(bytes, length, &packet, &run, err);
    if (code != ERROR_NONE)
        return code;
    code = json_get_u64(packet, "version", &version, err);
    if (code == ERROR_NONE && version != REGISTRY_VERSION)
        code = error_set(err, ERROR_PROTOCOL, "version %" PRIu64 " of the register's packets; this kldumpd speaks %d",
                         version, REGISTRY_VERSION);
    if (code == ERROR_NONE)
        code = json_get_string(packet, "name", &name, err);
    if (code == ERROR_NONE && !text_is_name(name))
        code = error_set(err, ERROR_PROTOCOL, "name: no name of a run");
    if (code == ERROR_NONE) {
        text_copy(entry->name, sizeof entry->name, name);
        *ret_run = true_run(run, entry, name);
    } else if (err != NULL) {
        code = err->code = ERROR_PROTOCOL;
    }
    json_free(packet);
    return code;
}

enum error_code registry_packet_later(const char *bytes, size_t length, const struct registry_entry *entry,
                                      struct json **run, struct error *err)
{
    struct json *packet = NULL;
    const struct json *said;
    enum error_code code = parse(bytes, length, &packet, &said, err);
    if (code != ERROR_NONE)
        return code;
    json_free(*run);
    *run = true_run(said, entry, entry->name);
    json_free(packet);
    return ERROR_NONE;
}

/* Of statx(2): what the kernel has, without asking the filesystem. */
static bool look(int descriptor, unsigned wanted, struct statx *ret_status)
{
    return statx(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, wanted, ret_status) == 0;
}

/* O_DIRECTORY in the flags of a descriptor is the kernel's word that a folder was opened. */
static bool is_folder(int descriptor)
{
    int flags = fcntl(descriptor, F_GETFL);
    return flags >= 0 && (flags & O_PATH) != 0 && (flags & O_DIRECTORY) != 0;
}

enum error_code registry_packet_descriptors(const int *descriptors, size_t count, struct registry_entry *entry,
                                            struct error *err)
{
    struct statx folder, control;
    if (count != 2)
        return error_set(err, ERROR_PROTOCOL,
                         "%zu descriptors came with the first packet; expected two: the dump "
                         "folder and the control socket",
                         count);
    if (!is_folder(descriptors[0]) || !look(descriptors[0], 0, &folder))
        return error_set(err, ERROR_PROTOCOL,
                         "the first descriptor must be a folder, opened with O_PATH and O_DIRECTORY");
    if (!passing_is_path(descriptors[1]) || !look(descriptors[1], STATX_TYPE, &control) ||
        (control.stx_mask & STATX_TYPE) == 0 || !S_ISSOCK(control.stx_mode))
        return error_set(err, ERROR_PROTOCOL, "the second descriptor must be a Unix socket's file, opened with O_PATH");
    entry->folder_fd = descriptors[0];
    entry->control_fd = descriptors[1];
    entry->device = makedev(folder.stx_dev_major, folder.stx_dev_minor);
    return ERROR_NONE;
}

void registry_packet_send(int fd, const struct json *answer)
{
    struct buffer text;
    buffer_init(&text);
    json_print(answer, &text);
    passing_send(fd, text.data, text.length, NULL, 0, NULL); /* whoever does not read it learns from the end */
    buffer_fini(&text);
}
