#include "base/memory.h"
#include "base/text.h"
#include "pt/pt_crc32.h"
#include "pt/pt_file_private.h"
#include "pt/pt_open.h"
#include "pt/pt_tensor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pt_file *pt_file_new(void)
{
    struct pt_file *file = memory_new(sizeof *file);
    file->fd = -1;
    file->texts = memory_new(sizeof *file->texts);
    pt_zip_init(&file->zip);
    pt_pickle_init(&file->pickle);
    buffer_init(&file->pickle_bytes);
    file->problem = PT_FILE_MISSING;
    return file;
}

void pt_file_close(struct pt_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
    file->bytes = NULL;
    file->has_tensor = file->bare = false;
    file->size = file->spread_bytes = 0;
    file->kind = PT_FILE_NONE;
    file->value = file->meta = PT_PICKLE_NONE;
    list_fini(file->texts);
    if (file->spread_capacity > PT_FILE_WINDOW) {
        free(file->spread);
        file->spread = NULL;
        file->spread_capacity = 0;
    }
}

void pt_file_free(struct pt_file *file)
{
    if (file == NULL)
        return;
    pt_file_close(file);
    pt_zip_fini(&file->zip);
    pt_pickle_fini(&file->pickle);
    buffer_fini(&file->pickle_bytes);
    free(file->small);
    free(file->window);
    free(file->spread);
    free(file->texts);
    free(file);
}

enum error_code pt_file_private_named(const struct pt_file *file, enum error_code code, struct error *err)
{
    if (code != ERROR_NONE)
        error_prefix(err, "%s", file->name);
    return code;
}

enum error_code pt_file_private_read(struct pt_file *file, uint64_t position, void *bytes, size_t length,
                                     struct error *err)
{
    for (size_t done = 0; done < length;) {
        ssize_t n = pread(file->fd, (char *)bytes + done, length - done, (off_t)(position + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            file->problem = PT_FILE_UNREADABLE;
            return error_set_errno(err, ERROR_SYSTEM, errno, "reading at byte %" PRIu64, position + done);
        }
        if (n == 0) {
            file->problem = PT_FILE_UNREADABLE;
            return error_set(err, ERROR_FORMAT, "cut short while it was read: no byte %" PRIu64 " of %" PRIu64,
                             position + done, file->size);
        }
        done += (size_t)n;
    }
    return ERROR_NONE;
}

/* ---- container ---- */

static enum error_code no_memory(struct pt_file *file, size_t bytes, struct error *err)
{
    file->problem = PT_FILE_UNREADABLE;
    return error_set(err, ERROR_MEMORY, "no memory for %zu bytes", bytes);
}

static enum error_code damaged(struct pt_file *file, enum error_code code)
{
    file->problem = PT_FILE_ARCHIVE;
    if (file->zip.problem == PT_ZIP_FINE)
        file->zip.problem = PT_ZIP_DAMAGED;
    return code;
}

/* A small file takes one pread, without asking for its size first: what ends with an archive's end is all of it. False:
 * the file is larger, or something else. */
static bool read_small(struct pt_file *file)
{
    ssize_t n = pread(file->fd, file->small, PT_FILE_SMALL, 0);
    if (n <= 0 || n == PT_FILE_SMALL || pt_zip_read_memory(&file->zip, file->small, (size_t)n, NULL) != ERROR_NONE)
        return false;
    file->size = (uint64_t)n;
    file->bytes = file->small;
    return true;
}

static enum error_code read_archive(struct pt_file *file, struct error *err)
{
    if (file->small == NULL && (file->small = malloc(PT_FILE_SMALL)) == NULL)
        return no_memory(file, PT_FILE_SMALL, err);
    if (read_small(file)) {
        close(file->fd);
        file->fd = -1;
        return ERROR_NONE;
    }
    struct stat status;
    enum error_code code = pt_open_status(file->fd, &status, &file->problem, err);
    if (code != ERROR_NONE)
        return code;
    file->size = (uint64_t)status.st_size;
    code = pt_zip_read_file(&file->zip, file->fd, file->size, err);
    return code == ERROR_NONE ? code : damaged(file, code);
}

/* Members that say which kind of file it is. */
static enum error_code check_members(struct pt_file *file, struct error *err)
{
    const struct pt_zip_member *order = pt_zip_find(&file->zip, "byteorder");
    if (pt_zip_find(&file->zip, "constants.pkl") != NULL) {
        file->problem = PT_FILE_UNSUPPORTED;
        return error_set(err, ERROR_FORMAT, "a TorchScript archive (it has constants.pkl), not one of torch.save");
    }
    if (order == NULL) /* torch before 2.1: as the machine that wrote it */
        return ERROR_NONE;
    uint64_t position;
    char text[8] = "";
    enum error_code code = pt_zip_locate(&file->zip, file->fd, order, &position, err);
    if (code != ERROR_NONE)
        return damaged(file, code);
    size_t length = order->size < sizeof text - 1 ? (size_t)order->size : sizeof text - 1;
    if (file->bytes != NULL)
        memcpy(text, file->bytes + position, length);
    else
        code = pt_file_private_read(file, position, text, length, err);
    if (code == ERROR_NONE && strcmp(text, "little") != 0) {
        char clean[32];
        file->problem = PT_FILE_UNSUPPORTED;
        code = error_set(err, ERROR_FORMAT, "byteorder at byte %" PRIu64 " is \"%s\"; only \"little\" is read",
                         position, text_clean(text, length, clean, sizeof clean));
    }
    return code;
}

static enum error_code read_pickle(struct pt_file *file, struct error *err)
{
    const struct pt_zip_member *member = pt_zip_find(&file->zip, "data.pkl");
    if (member == NULL)
        return damaged(file, error_set(err, ERROR_FORMAT, "an archive without data.pkl: saving failed in the writer"));
    uint64_t position = 0;
    enum error_code code = pt_zip_locate(&file->zip, file->fd, member, &position, err);
    const uint8_t *bytes = file->bytes == NULL ? NULL : file->bytes + position;
    if (code == ERROR_NONE && file->bytes == NULL) {
        code = pt_zip_payload_file(&file->zip, file->fd, member, PT_PICKLE_BYTES_MAX, &file->pickle_bytes, err);
        bytes = (const uint8_t *)file->pickle_bytes.data;
    }
    if (code != ERROR_NONE)
        return damaged(file, code);
    uint32_t crc = member->crc == 0 ? 0 : pt_crc32(0, bytes, (size_t)member->size);
    if (crc != member->crc)
        return damaged(file, error_set(err, ERROR_FORMAT,
                                       "data.pkl at byte %" PRIu64 " has the CRC %08" PRIx32 "; %08" PRIx32
                                       " was recorded: the file is damaged",
                                       position, crc, member->crc));
    code = pt_pickle_read(&file->pickle, bytes, (size_t)member->size, position, err);
    if (code != ERROR_NONE)
        file->problem = file->pickle.suspicious ? PT_FILE_SUSPICIOUS : PT_FILE_PICKLE;
    return code;
}

/* ---- value and meta ---- */

/* {"value": ..., "meta": {...}}, as the dumper writes it; anything else is the bare object. */
static void find_value(struct pt_file *file)
{
    uint32_t root = file->pickle.root;
    uint32_t value = pt_pickle_member(&file->pickle, root, "value", 5);
    uint32_t meta = pt_pickle_member(&file->pickle, root, "meta", 4);
    file->bare = value == PT_PICKLE_NONE || meta == PT_PICKLE_NONE;
    file->value = file->bare ? root : value;
    file->meta = file->bare ? PT_PICKLE_NONE : meta;
}

static bool all_texts(const struct pt_pickle *pickle, const struct pt_pickle_node *list)
{
    if (list->kind != PT_PICKLE_LIST)
        return false;
    for (uint32_t cell = list->items.first; cell != 0; cell = pickle->cells[cell].next)
        if (pickle->nodes[pickle->cells[cell].node].kind != PT_PICKLE_TEXT)
            return false;
    return true;
}

static enum pt_file_kind kind_of(const struct pt_pickle *pickle, const struct pt_pickle_node *node)
{
    switch ((enum pt_pickle_kind)node->kind) {
    case PT_PICKLE_NOTHING:
        return PT_FILE_NONE;
    case PT_PICKLE_BOOL:
    case PT_PICKLE_INTEGER:
    case PT_PICKLE_BIG:
    case PT_PICKLE_REAL:
        return PT_FILE_NUMBER;
    case PT_PICKLE_TEXT:
        return PT_FILE_TEXT;
    default:
        return pt_tensor_is(node) ? PT_FILE_TENSOR : all_texts(pickle, node) ? PT_FILE_TEXTS : PT_FILE_OTHER;
    }
}

static enum error_code find_storage(struct pt_file *file, const struct pt_tensor_storage *storage, struct error *err)
{
    const struct pt_pickle_node *node = pt_pickle_node(&file->pickle, file->value);
    uint64_t at = file->pickle.file_position + node->position;
    char name[PT_FILE_KEY_MAX + 8];
    file->problem = PT_FILE_PICKLE;
    if (storage->key_length > PT_FILE_KEY_MAX || storage->location_length > PT_FILE_LOCATION_MAX)
        return error_set(err, ERROR_FORMAT, "pickle at byte %" PRIu64 ": the names of the storage are too long", at);
    memcpy(file->key, storage->key, storage->key_length);
    file->key[storage->key_length] = '\0';
    memcpy(file->location, storage->location, storage->location_length);
    file->location[storage->location_length] = '\0';
    memcpy(name, "data/", 5);
    memcpy(name + 5, file->key, storage->key_length + 1);
    const struct pt_zip_member *member = pt_zip_find(&file->zip, name);
    if (member == NULL)
        return damaged(file, error_set(err, ERROR_FORMAT,
                                       "pickle at byte %" PRIu64
                                       ": its storage is not in the archive: saving failed in the writer",
                                       at));
    if (storage->bytes > member->size) {
        file->problem = PT_FILE_GEOMETRY;
        return error_set(err, ERROR_FORMAT,
                         "pickle at byte %" PRIu64 ": a storage of %" PRIu64 " bytes, and its member at byte %" PRIu64
                         " has %" PRIu64,
                         at, storage->bytes, member->header_offset, member->size);
    }
    enum error_code code = pt_zip_locate(&file->zip, file->fd, member, &file->tensor.storage_position, err);
    if (code != ERROR_NONE)
        return damaged(file, code);
    file->tensor.location = file->location;
    file->tensor.storage_key = file->key;
    file->tensor.storage_bytes = storage->bytes;
    return ERROR_NONE;
}

static enum error_code read_value(struct pt_file *file, struct error *err)
{
    find_value(file);
    const struct pt_pickle_node *node = pt_pickle_node(&file->pickle, file->value);
    file->kind = kind_of(&file->pickle, node);
    if (file->kind == PT_FILE_TENSOR) {
        struct pt_tensor_storage storage;
        enum error_code code = pt_tensor_read(&file->pickle, file->value, &file->tensor, &storage, &file->problem, err);
        return code != ERROR_NONE ? code : find_storage(file, &storage, err);
    }
    if (file->kind != PT_FILE_OTHER)
        return ERROR_NONE;
    uint32_t unusable = pt_pickle_unusable(&file->pickle, file->value);
    if (unusable == PT_PICKLE_NONE)
        return ERROR_NONE;
    char name[200];
    const struct pt_pickle_node *found = pt_pickle_node(&file->pickle, unusable);
    file->problem = PT_FILE_UNSUPPORTED;
    return error_set(err, ERROR_FORMAT, "pickle at byte %" PRIu64 ": the value is made from %s, which is not read",
                     file->pickle.file_position + found->position,
                     pt_pickle_global_name(&file->pickle, found, name, sizeof name));
}

/* What was open before is closed. */
static void begin(struct pt_file *file, const char *name)
{
    pt_file_close(file);
    file->problem = PT_FILE_FINE;
    file->zip.problem = PT_ZIP_FINE;
    text_copy(file->name, sizeof file->name, name);
}

/* Goes on where the archive has been read, or has not. */
static enum error_code finish(struct pt_file *file, enum error_code code, struct error *err)
{
    if (code == ERROR_NONE)
        code = check_members(file, err);
    if (code == ERROR_NONE)
        code = read_pickle(file, err);
    if (code == ERROR_NONE)
        code = read_value(file, err);
    if (code == ERROR_NONE) {
        file->problem = PT_FILE_FINE;
        file->has_tensor = file->kind == PT_FILE_TENSOR;
        return ERROR_NONE;
    }
    uint64_t size = file->size;
    pt_file_close(file);
    file->size = size;
    return pt_file_private_named(file, code, err);
}

enum error_code pt_file_open(struct pt_file *file, int folder_fd, const char *name, struct error *err)
{
    begin(file, name);
    enum error_code code = pt_open(folder_fd, name, &file->fd, &file->problem, err);
    if (code == ERROR_NONE)
        code = read_archive(file, err);
    return finish(file, code, err);
}

enum error_code pt_file_open_memory(struct pt_file *file, const void *bytes, size_t length, const char *name,
                                    struct error *err)
{
    begin(file, name);
    file->size = length;
    enum error_code code = pt_zip_read_memory(&file->zip, bytes, length, err);
    if (code == ERROR_NONE)
        file->bytes = bytes;
    else
        damaged(file, code);
    return finish(file, code, err);
}

/* ---- what is in it ---- */

enum pt_file_problem pt_file_problem(const struct pt_file *file)
{
    return file->problem;
}

bool pt_file_refuses(enum pt_file_problem problem)
{
    return problem == PT_FILE_SUSPICIOUS || problem == PT_FILE_UNSUPPORTED || problem == PT_FILE_PICKLE ||
           problem == PT_FILE_GEOMETRY;
}

enum pt_zip_problem pt_file_zip_problem(const struct pt_file *file)
{
    return file->zip.problem;
}

enum pt_file_kind pt_file_kind(const struct pt_file *file)
{
    return file->kind;
}

bool pt_file_bare(const struct pt_file *file)
{
    return file->bare;
}

const struct pt_file_tensor *pt_file_tensor(const struct pt_file *file)
{
    return file->has_tensor ? &file->tensor : NULL;
}

uint64_t pt_file_size(const struct pt_file *file)
{
    return file->size;
}

const struct pt_pickle *pt_file_pickle(const struct pt_file *file, uint32_t *ret_value, uint32_t *ret_meta)
{
    *ret_value = file->value;
    *ret_meta = file->meta;
    return &file->pickle;
}

static bool is_plain_text(const struct pt_pickle *pickle, const struct pt_pickle_node *node)
{
    const char *text = (const char *)pickle->bytes + node->text.start;
    return node->kind == PT_PICKLE_TEXT && memchr(text, 0, node->text.length) == NULL &&
           text_is_utf8(text, node->text.length);
}

static enum error_code get_texts(const struct pt_file *file, struct list *list, struct error *err)
{
    const struct pt_pickle *pickle = &file->pickle;
    if (file->kind != PT_FILE_TEXTS)
        return error_set(err, ERROR_FORMAT, "the value is no list of texts");
    uint32_t first = pt_pickle_node(pickle, file->value)->items.first;
    for (uint32_t cell = first; cell != 0; cell = pickle->cells[cell].next) {
        const struct pt_pickle_node *node = &pickle->nodes[pickle->cells[cell].node];
        if (!is_plain_text(pickle, node))
            return error_set(err, ERROR_FORMAT, "pickle at byte %" PRIu64 ": a text with a NUL, or that is not UTF-8",
                             pickle->file_position + node->position);
    }
    for (uint32_t cell = first; cell != 0; cell = pickle->cells[cell].next) {
        const struct pt_pickle_node *node = &pickle->nodes[pickle->cells[cell].node];
        list_add_format(list, "%.*s", (int)node->text.length, (const char *)pickle->bytes + node->text.start);
    }
    return ERROR_NONE;
}

enum error_code pt_file_texts(const struct pt_file *file, struct list *ret_list, struct error *err)
{
    return pt_file_private_named(file, get_texts(file, ret_list, err), err);
}

/* The node that a path leads to, names with dots between; NULL: nowhere. */
static const struct pt_pickle_node *find_meta(const struct pt_file *file, const char *path)
{
    uint32_t number = file->meta;
    for (const char *name = path; number != PT_PICKLE_NONE;) {
        size_t length = strcspn(name, ".");
        number = pt_pickle_member(&file->pickle, number, name, length);
        if (name[length] == '\0')
            break;
        name += length + 1;
    }
    return number == PT_PICKLE_NONE ? NULL : pt_pickle_node(&file->pickle, number);
}

bool pt_file_meta_integer(const struct pt_file *file, const char *path, int64_t *ret_value)
{
    const struct pt_pickle_node *node = find_meta(file, path);
    if (node == NULL || node->kind != PT_PICKLE_INTEGER)
        return false;
    *ret_value = node->integer;
    return true;
}

bool pt_file_meta_text(const struct pt_file *file, const char *path, const char **ret_value)
{
    const struct pt_pickle_node *node = find_meta(file, path);
    if (node == NULL || !is_plain_text(&file->pickle, node))
        return false;
    list_add_format(file->texts, "%.*s", (int)node->text.length, (const char *)file->pickle.bytes + node->text.start);
    *ret_value = file->texts->items[file->texts->count - 1];
    return true;
}
