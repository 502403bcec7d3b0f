#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Length of the UTF-8 sequence at the front, 0 when it is not one. */
static size_t sequence(const unsigned char *p, size_t left)
{
    static const struct {
        unsigned char mask, lead;
        size_t length;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 1, 0}, {0xe0, 0xc0, 2, 0x80}, {0xf0, 0xe0, 3, 0x800}, {0xf8, 0xf0, 4, 0x10000}};
    for (size_t i = 0; i < 4; i++) {
        if ((p[0] & forms[i].mask) != forms[i].lead || left < forms[i].length)
            continue;
        uint32_t value = p[0] & (unsigned char)~forms[i].mask;
        for (size_t k = 1; k < forms[i].length; k++) {
            if ((p[k] & 0xc0) != 0x80)
                return 0;
            value = value << 6 | (p[k] & 0x3fu);
        }
        bool fine = value >= forms[i].least && value <= 0x10ffff && !(value >= 0xd800 && value <= 0xdfff);
        return fine ? forms[i].length : 0;
    }
    return 0;
}

/* Bytes at the front that are ASCII, as far as eight at a time can tell: nearly all of what is ever checked. */
static size_t plain(const char *bytes, size_t length)
{
    size_t count = 0;
    for (uint64_t eight; count + sizeof eight <= length; count += sizeof eight) {
        memcpy(&eight, bytes + count, sizeof eight);
        if ((eight & 0x8080808080808080u) != 0)
            break;
    }
    return count;
}

bool text_is_utf8(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length;) {
        i += plain(bytes + i, length - i);
        if (i == length)
            break;
        size_t n = sequence((const unsigned char *)bytes + i, length - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

size_t text_unfinished(const char *bytes, size_t length)
{
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        unsigned char byte = (unsigned char)bytes[length - back];
        if ((byte & 0xc0) == 0x80)
            continue;
        size_t needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
        return needed > back ? back : 0;
    }
    return 0;
}

const char *text_clean(const char *bytes, size_t length, char *out, size_t out_size)
{
    size_t used = 0, cut = 0; /* cut: the last place where the dots still fit */
    for (size_t i = 0; i < length;) {
        const unsigned char *p = (const unsigned char *)bytes + i;
        size_t n = sequence(p, length - i);
        /* C1 controls (U+0080..U+009F) act on terminals as well */
        bool control = n == 0 || p[0] < 0x20 || p[0] == 0x7f || (n == 2 && p[0] == 0xc2 && p[1] < 0xa0);
        size_t needed = control ? 1 : n;
        if (used + 4 <= out_size)
            cut = used;
        if (used + needed + 1 > out_size) {
            snprintf(out + cut, out_size - cut, "...");
            return out;
        }
        if (control)
            out[used] = p[0] == '\t' ? ' ' : '?';
        else
            memcpy(out + used, p, n);
        used += needed;
        i += n == 0 ? 1 : n;
    }
    out[used] = '\0';
    return out;
}

bool text_starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool text_ends(const char *text, const char *suffix)
{
    size_t a = strlen(text), b = strlen(suffix);
    return a >= b && strcmp(text + a - b, suffix) == 0;
}

bool text_is_name(const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || length > 64 || text[0] == '.' || text[0] == '-')
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                    c == '_' || c == '-';
        if (!fine)
            return false;
    }
    return true;
}

void text_copy(char *out, size_t out_size, const char *text)
{
    snprintf(out, out_size, "%s", text);
}
