#include "base/text.h"
#include "pt/pt_zip_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Layout of the zip records that matter here (PKWARE's APPNOTE 6.3, sections 4.3 and 4.5). */
enum {
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    COMMENT_MAX = 65535,
    TAIL_BYTES = 4096, /* directory and end of an ordinary dump file: about 1.3 kB */
    MEMBERS_MIN = 16,  /* room that is made at once */
    SORTED_BY_INSERTION = 32,
    EXTRA_ZIP64 = 1,
    METHOD_STORED = 0,
    FLAG_ENCRYPTED = 1,
};

#define SIGNATURE_CENTRAL 0x02014b50u
#define SIGNATURE_END     0x06054b50u
#define SIGNATURE_END64   0x06064b50u
#define SIGNATURE_LOCATOR 0x07064b50u

struct directory {
    uint64_t count, size, offset;
    uint64_t end; /* where the end records begin: the directory has to reach exactly to here */
};

void pt_zip_init(struct pt_zip *zip)
{
    *zip = (struct pt_zip){0};
}

void pt_zip_fini(struct pt_zip *zip)
{
    buffer_fini(&zip->tail);
    free(zip->members);
    free(zip->order);
    pt_zip_init(zip);
}

static void reset(struct pt_zip *zip, uint64_t size)
{
    zip->member_count = 0;
    zip->prefix = NULL;
    zip->prefix_length = 0;
    zip->problem = PT_ZIP_FINE;
    zip->file_size = size;
}

static enum error_code no_memory(struct pt_zip *zip, uint64_t bytes, struct error *err)
{
    zip->problem = PT_ZIP_UNREADABLE;
    return error_set(err, ERROR_MEMORY, "no memory for %" PRIu64 " bytes", bytes);
}

#define DAMAGED(zip, err, ...) ((zip)->problem = PT_ZIP_DAMAGED, error_set((err), ERROR_FORMAT, __VA_ARGS__))

/* ---- what a file without an end record is ---- */

static enum error_code classify(struct pt_zip *zip, const uint8_t *head, size_t length, struct error *err)
{
    static const uint8_t legacy[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                     0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e};
    static const uint8_t local[] = {'P', 'K', 3, 4};
    if (length >= 1 && memcmp(head, local, length < sizeof local ? length : sizeof local) == 0) {
        zip->problem = PT_ZIP_TRUNCATED;
        return error_set(err, ERROR_FORMAT,
                         "cut short: %" PRIu64 " bytes that begin as a torch.save archive and have no end record",
                         zip->file_size);
    }
    if (length >= sizeof legacy && memcmp(head, legacy, sizeof legacy) == 0) {
        zip->problem = PT_ZIP_LEGACY;
        return error_set(err, ERROR_FORMAT,
                         "torch.save's legacy format (before torch 1.6); only the zip format is read");
    }
    zip->problem = PT_ZIP_FOREIGN;
    if (length >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5)
        return error_set(err, ERROR_FORMAT, "a bare pickle, not a torch.save archive");
    char text[3 * 8 + 1] = "";
    for (size_t i = 0; i < length && i < 8; i++) {
        static const char digits[] = "0123456789abcdef";
        text[3 * i] = digits[head[i] >> 4];
        text[3 * i + 1] = digits[head[i] & 15];
        text[3 * i + 2] = i + 1 < length && i < 7 ? ' ' : '\0';
        text[3 * i + 3] = '\0';
    }
    return error_set(err, ERROR_FORMAT, "not a torch.save archive: %" PRIu64 " bytes, the first are %s", zip->file_size,
                     text);
}

/* ---- end records ---- */

/* Looks in the window for the last end record whose comment ends where the file ends; true with its position. */
static bool find_end(const struct pt_zip *zip, uint64_t *ret_offset)
{
    if (zip->file_size < END_BYTES)
        return false;
    for (uint64_t comment = 0; comment <= COMMENT_MAX && comment + END_BYTES <= zip->file_size; comment++) {
        uint64_t offset = zip->file_size - END_BYTES - comment;
        const uint8_t *p = pt_zip_at(zip, offset, END_BYTES);
        if (p == NULL)
            return false;
        if (pt_zip_get32(p) == SIGNATURE_END && pt_zip_get16(p + 20) == comment) {
            *ret_offset = offset;
            return true;
        }
    }
    return false;
}

/* Where the window must begin so that read_end and read_directory have what they need; file_size: nothing is known. */
static enum error_code read_end64(struct pt_zip *zip, uint64_t locator_offset, uint64_t *ret_needed,
                                  struct directory *ret_directory, struct error *err)
{
    const uint8_t *locator = pt_zip_at(zip, locator_offset, LOCATOR_BYTES);
    uint64_t offset = pt_zip_get64(locator + 8);
    if (pt_zip_get32(locator + 4) != 0 || pt_zip_get32(locator + 16) > 1)
        return DAMAGED(zip, err, "zip64 locator at byte %" PRIu64 ": an archive in several parts", locator_offset);
    if (offset > locator_offset || locator_offset - offset < END64_BYTES)
        return DAMAGED(zip, err,
                       "zip64 locator at byte %" PRIu64 " points to byte %" PRIu64 ", where no end record fits",
                       locator_offset, offset);
    if (offset < zip->window_offset) {
        /* A longer record than the 56 bytes that everybody writes: of a size that a window may be. */
        if (locator_offset - offset > COMMENT_MAX)
            return DAMAGED(zip, err, "zip64 end record at byte %" PRIu64 " is %" PRIu64 " bytes long", offset,
                           locator_offset - offset);
        *ret_needed = offset;
        return ERROR_NONE;
    }
    const uint8_t *p = pt_zip_at(zip, offset, END64_BYTES);
    if (pt_zip_get32(p) != SIGNATURE_END64)
        return DAMAGED(zip, err, "no zip64 end record at byte %" PRIu64 ", where the locator points", offset);
    if (pt_zip_get64(p + 4) != locator_offset - offset - 12)
        return DAMAGED(zip, err, "zip64 end record at byte %" PRIu64 " says %" PRIu64 " bytes and has %" PRIu64, offset,
                       pt_zip_get64(p + 4), locator_offset - offset - 12);
    if (pt_zip_get32(p + 16) != 0 || pt_zip_get32(p + 20) != 0 || pt_zip_get64(p + 24) != pt_zip_get64(p + 32))
        return DAMAGED(zip, err, "zip64 end record at byte %" PRIu64 ": an archive in several parts", offset);
    *ret_directory = (struct directory){
        .count = pt_zip_get64(p + 32), .size = pt_zip_get64(p + 40), .offset = pt_zip_get64(p + 48), .end = offset};
    return ERROR_NONE;
}

static bool agrees(uint64_t narrow, uint64_t unknown, uint64_t wide)
{
    return narrow == unknown || narrow == wide;
}

/* Reads the end record at end_offset and what belongs to it. When bytes before the window are needed, *ret_needed is
 * set to where they begin and nothing else. */
static enum error_code read_end(struct pt_zip *zip, uint64_t end_offset, uint64_t *ret_needed,
                                struct directory *ret_directory, struct error *err)
{
    const uint8_t *p = pt_zip_at(zip, end_offset, END_BYTES);
    struct directory narrow = {
        .count = pt_zip_get16(p + 10), .size = pt_zip_get32(p + 12), .offset = pt_zip_get32(p + 16), .end = end_offset};
    if (pt_zip_get16(p + 4) != 0 || pt_zip_get16(p + 6) != 0 || pt_zip_get16(p + 8) != pt_zip_get16(p + 10))
        return DAMAGED(zip, err, "end record at byte %" PRIu64 ": an archive in several parts", end_offset);

    struct directory directory = narrow;
    if (end_offset >= LOCATOR_BYTES) {
        uint64_t locator_offset = end_offset - LOCATOR_BYTES;
        const uint8_t *locator = pt_zip_at(zip, locator_offset, LOCATOR_BYTES);
        if (locator == NULL) {
            *ret_needed = locator_offset;
            return ERROR_NONE;
        }
        if (pt_zip_get32(locator) == SIGNATURE_LOCATOR) {
            uint64_t needed = zip->file_size;
            enum error_code code = read_end64(zip, locator_offset, &needed, &directory, err);
            if (code != ERROR_NONE)
                return code;
            if (needed != zip->file_size) {
                *ret_needed = needed;
                return ERROR_NONE;
            }
        }
    }
    if (!agrees(narrow.count, 0xffff, directory.count) || !agrees(narrow.size, 0xffffffff, directory.size) ||
        !agrees(narrow.offset, 0xffffffff, directory.offset))
        return DAMAGED(zip, err, "end record at byte %" PRIu64 " and its zip64 record do not agree", end_offset);
    if (directory.offset > directory.end || directory.size != directory.end - directory.offset)
        return DAMAGED(zip, err,
                       "end record at byte %" PRIu64 ": a directory of %" PRIu64 " bytes at byte %" PRIu64
                       " does not end at byte %" PRIu64,
                       end_offset, directory.size, directory.offset, directory.end);
    if (directory.count > PT_ZIP_MEMBERS_MAX || directory.count > directory.size / CENTRAL_BYTES)
        return DAMAGED(zip, err,
                       "end record at byte %" PRIu64 ": %" PRIu64 " members in a directory of %" PRIu64 " bytes",
                       end_offset, directory.count, directory.size);
    if (directory.size > PT_ZIP_DIRECTORY_MAX) {
        zip->problem = PT_ZIP_DAMAGED;
        return error_set(err, ERROR_TOO_LARGE,
                         "directory of %" PRIu64 " bytes at byte %" PRIu64 "; at most %d are read", directory.size,
                         directory.offset, PT_ZIP_DIRECTORY_MAX);
    }
    if (directory.offset < zip->window_offset)
        *ret_needed = directory.offset;
    *ret_directory = directory;
    return ERROR_NONE;
}

/* ---- central directory ---- */

/* Fills in the values that stand as 0xffffffff from the zip64 extra field, in the order size, compressed size, offset.
 */
static enum error_code widen(struct pt_zip *zip, const uint8_t *extra, size_t length, uint64_t position,
                             uint64_t *values, struct error *err)
{
    bool done = false;
    for (size_t i = 0; i < length;) {
        if (length - i < 4 || pt_zip_get16(extra + i + 2) > length - i - 4)
            return DAMAGED(zip, err, "directory entry at byte %" PRIu64 ": an extra field reaches past its end",
                           position);
        size_t field = pt_zip_get16(extra + i + 2), used = 0;
        if (pt_zip_get16(extra + i) == EXTRA_ZIP64 && !done) {
            for (int k = 0; k < 3; k++) {
                if (values[k] != 0xffffffff)
                    continue;
                if (field - used < 8)
                    return DAMAGED(zip, err,
                                   "directory entry at byte %" PRIu64 ": zip64 field of %zu bytes is too short",
                                   position, field);
                values[k] = pt_zip_get64(extra + i + 4 + used);
                used += 8;
            }
            done = true;
        }
        i += 4 + field;
    }
    return ERROR_NONE;
}

enum { BYTE_REFUSED = 1, BYTE_SLASH = 2, BYTE_HIGH = 4 };
static const uint8_t byte_classes[256] = {
    [0 ... 0x1f] = BYTE_REFUSED, [0x7f] = BYTE_REFUSED,       ['\\'] = BYTE_REFUSED,
    ['/'] = BYTE_SLASH,          [0x80 ... 0xff] = BYTE_HIGH,
};

static bool climbs(const char *part, size_t length)
{
    return length == 2 && part[0] == '.' && part[1] == '.';
}

/* No "..", nothing that a terminal or a file system would take as something else; UTF-8. */
static bool name_is_plain(const char *name, size_t length)
{
    unsigned seen = 0;
    for (size_t i = 0; i < length; i++)
        seen |= byte_classes[(unsigned char)name[i]];
    if ((seen & BYTE_REFUSED) != 0 || ((seen & BYTE_HIGH) != 0 && !text_is_utf8(name, length)))
        return false;
    for (const char *slash; (seen & BYTE_SLASH) != 0 && (slash = memchr(name, '/', length)) != NULL;) {
        size_t part = (size_t)(slash - name);
        if (climbs(name, part))
            return false;
        name += part + 1;
        length -= part + 1;
    }
    return !climbs(name, length);
}

/* The first name gives the prefix of all; it is looked at once. */
static bool take_prefix(struct pt_zip *zip, const char *name, size_t length)
{
    const char *slash = memchr(name, '/', length);
    if (slash == NULL || slash == name || !name_is_plain(name, (size_t)(slash - name)))
        return false;
    zip->prefix = name;
    zip->prefix_length = (size_t)(slash - name);
    return true;
}

static enum error_code take_name(struct pt_zip *zip, const char *name, size_t length, uint64_t position,
                                 struct pt_zip_member *member, struct error *err)
{
    if (length > PT_ZIP_NAME_MAX || (zip->prefix == NULL && !take_prefix(zip, name, length)))
        return DAMAGED(zip, err, "directory entry at byte %" PRIu64 ": a name of %zu bytes that torch does not write",
                       position, length);
    size_t head = zip->prefix_length + 1;
    if (length <= head || memcmp(name, zip->prefix, head) != 0)
        return DAMAGED(zip, err, "directory entry at byte %" PRIu64 ": the name does not begin like the first one's",
                       position);
    if (!name_is_plain(name + head, length - head))
        return DAMAGED(zip, err, "directory entry at byte %" PRIu64 ": a name of %zu bytes that torch does not write",
                       position, length);
    member->name = name + head;
    member->name_length = length - head;
    return ERROR_NONE;
}

/* One entry; *position is moved behind it. */
static enum error_code read_entry(struct pt_zip *zip, const struct directory *directory, uint64_t *position,
                                  struct pt_zip_member *member, struct error *err)
{
    uint64_t start = *position, left = directory->end - start;
    const uint8_t *p = pt_zip_at(zip, start, left < CENTRAL_BYTES ? left : CENTRAL_BYTES);
    if (left < CENTRAL_BYTES || pt_zip_get32(p) != SIGNATURE_CENTRAL)
        return DAMAGED(zip, err, "no directory entry at byte %" PRIu64 ", where one should be", start);
    size_t name_length = pt_zip_get16(p + 28), extra_length = pt_zip_get16(p + 30),
           comment_length = pt_zip_get16(p + 32);
    if (left - CENTRAL_BYTES < name_length + extra_length + comment_length)
        return DAMAGED(zip, err, "directory entry at byte %" PRIu64 " reaches past the directory's end", start);
    if ((pt_zip_get16(p + 8) & FLAG_ENCRYPTED) != 0 || pt_zip_get16(p + 10) != METHOD_STORED)
        return DAMAGED(zip, err, "directory entry at byte %" PRIu64 ": compressed or encrypted; torch stores plainly",
                       start);
    uint64_t values[3] = {pt_zip_get32(p + 24), pt_zip_get32(p + 20),
                          pt_zip_get32(p + 42)}; /* size, compressed size, offset */
    enum error_code code = widen(zip, p + CENTRAL_BYTES + name_length, extra_length, start, values, err);
    if (code == ERROR_NONE)
        code = take_name(zip, (const char *)p + CENTRAL_BYTES, name_length, start, member, err);
    if (code != ERROR_NONE)
        return code;
    if (values[0] != values[1] || pt_zip_get16(p + 34) != 0)
        return DAMAGED(zip, err, "directory entry at byte %" PRIu64 ": two different sizes, or a part of another file",
                       start);
    member->size = values[0];
    member->header_offset = values[2];
    member->crc = pt_zip_get32(p + 16);
    *position = start + CENTRAL_BYTES + name_length + extra_length + comment_length;
    return ERROR_NONE;
}

static int by_offset(const void *a, const void *b)
{
    const struct pt_zip_member *const *x = a, *const *y = b;
    return ((*x)->header_offset > (*y)->header_offset) - ((*x)->header_offset < (*y)->header_offset);
}

static int by_name(const void *a, const void *b)
{
    const struct pt_zip_member *const *x = a, *const *y = b;
    size_t shorter = (*x)->name_length < (*y)->name_length ? (*x)->name_length : (*y)->name_length;
    int order = memcmp((*x)->name, (*y)->name, shorter);
    return order != 0 ? order : ((*x)->name_length > (*y)->name_length) - ((*x)->name_length < (*y)->name_length);
}

/* Few, and nearly in order: a dump file has seven. */
static void sort(struct pt_zip_member **order, size_t count, int (*compare)(const void *, const void *))
{
    if (count > SORTED_BY_INSERTION) {
        qsort(order, count, sizeof *order, compare);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        struct pt_zip_member *moved = order[i];
        size_t k = i;
        for (; k > 0 && compare(&order[k - 1], &moved) > 0; k--)
            order[k] = order[k - 1];
        order[k] = moved;
    }
}

/* No two members share a byte or a name, none reaches into the directory; sets `limit`. */
static enum error_code check_layout(struct pt_zip *zip, uint64_t directory_offset, struct error *err)
{
    struct pt_zip_member **order = zip->order;
    for (size_t i = 0; i < zip->member_count; i++)
        order[i] = &zip->members[i];
    enum error_code code = ERROR_NONE;
    sort(order, zip->member_count, by_name);
    for (size_t i = 1; code == ERROR_NONE && i < zip->member_count; i++)
        if (by_name(&order[i - 1], &order[i]) == 0)
            code = DAMAGED(zip, err, "two members at bytes %" PRIu64 " and %" PRIu64 " have the same name",
                           order[i - 1]->header_offset, order[i]->header_offset);
    sort(order, zip->member_count, by_offset);
    for (size_t i = 0; code == ERROR_NONE && i < zip->member_count; i++) {
        struct pt_zip_member *member = order[i];
        member->limit = i + 1 < zip->member_count ? order[i + 1]->header_offset : directory_offset;
        uint64_t head = PT_ZIP_LOCAL_BYTES + zip->prefix_length + 1 + member->name_length;
        if (member->header_offset > member->limit || head > member->limit - member->header_offset ||
            member->size > member->limit - member->header_offset - head)
            code = DAMAGED(zip, err,
                           "member at byte %" PRIu64 " with %" PRIu64 " bytes reaches past byte %" PRIu64
                           ", where the next thing begins",
                           member->header_offset, member->size, member->limit);
    }
    return code;
}

/* Room for so many members; what was there is kept for the next archive. */
static enum error_code reserve(struct pt_zip *zip, size_t count, struct error *err)
{
    if (count <= zip->member_capacity)
        return ERROR_NONE;
    size_t capacity = count < MEMBERS_MIN ? MEMBERS_MIN : count;
    free(zip->members);
    free(zip->order);
    zip->members = calloc(capacity, sizeof *zip->members);
    zip->order = calloc(capacity, sizeof *zip->order);
    zip->member_capacity = zip->members != NULL && zip->order != NULL ? capacity : 0;
    return zip->member_capacity != 0 ? ERROR_NONE : no_memory(zip, capacity * sizeof *zip->members, err);
}

static enum error_code read_directory(struct pt_zip *zip, const struct directory *directory, struct error *err)
{
    enum error_code code = reserve(zip, (size_t)directory->count, err);
    if (code != ERROR_NONE)
        return code;
    uint64_t position = directory->offset;
    for (uint64_t i = 0; i < directory->count; i++) {
        code = read_entry(zip, directory, &position, &zip->members[i], err);
        if (code != ERROR_NONE)
            return code;
        zip->member_count++;
    }
    if (position != directory->end)
        return DAMAGED(zip, err, "directory ends at byte %" PRIu64 ", its entries at byte %" PRIu64, directory->end,
                       position);
    if (zip->member_count == 0)
        return DAMAGED(zip, err, "an archive without members");
    return check_layout(zip, directory->offset, err);
}

/* On failure: no members, and the code. */
static enum error_code finish(struct pt_zip *zip, enum error_code code)
{
    if (code != ERROR_NONE) {
        enum pt_zip_problem problem = zip->problem;
        reset(zip, zip->file_size);
        zip->problem = problem;
    }
    return code;
}

static enum error_code empty(struct pt_zip *zip, struct error *err)
{
    zip->problem = PT_ZIP_EMPTY;
    return error_set(err, ERROR_FORMAT, "empty (0 bytes)");
}

enum error_code pt_zip_read_memory(struct pt_zip *zip, const void *bytes, size_t length, struct error *err)
{
    reset(zip, length);
    zip->window = bytes;
    zip->window_offset = 0;
    if (length == 0)
        return empty(zip, err);
    uint64_t end_offset, needed = length;
    if (!find_end(zip, &end_offset))
        return classify(zip, bytes, length, err);
    struct directory directory = {0};
    enum error_code code = read_end(zip, end_offset, &needed, &directory, err);
    if (code == ERROR_NONE)
        code = read_directory(zip, &directory, err);
    return finish(zip, code);
}

/* ---- the same from a descriptor ---- */

enum error_code pt_zip_private_read(struct pt_zip *zip, int fd, void *bytes, size_t length, uint64_t offset,
                                    struct error *err)
{
    for (size_t done = 0; done < length;) {
        ssize_t n = pread(fd, (char *)bytes + done, length - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            zip->problem = PT_ZIP_UNREADABLE;
            return error_set_errno(err, ERROR_SYSTEM, errno, "reading at byte %" PRIu64, offset + done);
        }
        if (n == 0) {
            zip->problem = PT_ZIP_TRUNCATED;
            return error_set(err, ERROR_FORMAT, "cut short while it was read: no byte %" PRIu64 " of %" PRIu64,
                             offset + done, zip->file_size);
        }
        done += (size_t)n;
    }
    return ERROR_NONE;
}

/* Makes the window reach from `offset` to the end of the file. */
static enum error_code load(struct pt_zip *zip, int fd, uint64_t offset, struct error *err)
{
    size_t length = (size_t)(zip->file_size - offset);
    if (zip->tail.data == NULL)
        buffer_init(&zip->tail);
    if (zip->tail.capacity < length) {
        char *larger = realloc(zip->tail.data, length);
        if (larger == NULL)
            return no_memory(zip, length, err);
        zip->tail.data = larger;
        zip->tail.capacity = length;
    }
    zip->window = (const uint8_t *)zip->tail.data;
    zip->window_offset = offset;
    return pt_zip_private_read(zip, fd, zip->tail.data, length, offset, err);
}

static enum error_code read_file(struct pt_zip *zip, int fd, struct error *err)
{
    uint64_t size = zip->file_size;
    enum error_code code = load(zip, fd, size > TAIL_BYTES ? size - TAIL_BYTES : 0, err);
    if (code != ERROR_NONE)
        return code;
    uint64_t end_offset;
    bool found = find_end(zip, &end_offset);
    if (!found && zip->window_offset > 0) {
        uint64_t most = END_BYTES + COMMENT_MAX;
        code = load(zip, fd, size > most ? size - most : 0, err);
        if (code != ERROR_NONE)
            return code;
        found = find_end(zip, &end_offset);
    }
    if (!found) {
        uint8_t head[16];
        size_t length = size < sizeof head ? (size_t)size : sizeof head;
        code = pt_zip_private_read(zip, fd, head, length, 0, err);
        return code != ERROR_NONE ? code : classify(zip, head, length, err);
    }
    struct directory directory = {0};
    /* Twice at most: the window grows to the zip64 record, then to the directory. */
    for (int turn = 0; turn < 4; turn++) {
        uint64_t needed = size;
        code = read_end(zip, end_offset, &needed, &directory, err);
        if (code != ERROR_NONE)
            return code;
        if (needed == size)
            return read_directory(zip, &directory, err);
        code = load(zip, fd, needed, err);
        if (code != ERROR_NONE)
            return code;
    }
    return DAMAGED(zip, err, "end records of the file changed while it was read");
}

enum error_code pt_zip_read_file(struct pt_zip *zip, int fd, uint64_t size, struct error *err)
{
    reset(zip, size);
    if (size == 0)
        return empty(zip, err);
    if (size > INT64_MAX) {
        zip->problem = PT_ZIP_UNREADABLE;
        return error_set(err, ERROR_TOO_LARGE, "a size of %" PRIu64 " bytes", size);
    }
    return finish(zip, read_file(zip, fd, err));
}
