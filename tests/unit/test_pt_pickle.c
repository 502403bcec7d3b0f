/* Pickles by hand, opcode by opcode: what is understood, and what is refused with its byte position. */
#include "pt/pt_pickle.h"
#include "base/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A tree as one line: {'value': [1, 2.5, None], ...}; for small trees. */
static void show(const struct pt_pickle *pickle, uint32_t number, struct buffer *out)
{
    static const char *const brackets[] = {
        [PT_PICKLE_TUPLE] = "()", [PT_PICKLE_LIST] = "[]", [PT_PICKLE_DICT] = "{}", [PT_PICKLE_SET] = "<>"};
    const struct pt_pickle_node *node = pt_pickle_node(pickle, number);
    char name[200];
    switch ((enum pt_pickle_kind)node->kind) {
    case PT_PICKLE_NOTHING:
        buffer_text(out, "None");
        break;
    case PT_PICKLE_BOOL:
        buffer_text(out, node->boolean ? "True" : "False");
        break;
    case PT_PICKLE_INTEGER:
        buffer_format(out, "%lld", (long long)node->integer);
        break;
    case PT_PICKLE_REAL:
        buffer_format(out, "%g", node->real);
        break;
    case PT_PICKLE_BIG:
        buffer_format(out, "big%u", node->text.length);
        break;
    case PT_PICKLE_BYTES:
        buffer_text(out, "b");
        /* fall through */
    case PT_PICKLE_TEXT:
        buffer_format(out, "'%.*s'", (int)node->text.length, (const char *)pickle->bytes + node->text.start);
        break;
    case PT_PICKLE_GLOBAL:
    case PT_PICKLE_OPAQUE:
        buffer_format(out, "%s%s", node->kind == PT_PICKLE_OPAQUE ? "?" : "",
                      pt_pickle_global_name(pickle, node, name, sizeof name));
        break;
    case PT_PICKLE_CALL:
        buffer_text(out, pt_pickle_global_name(pickle, node, name, sizeof name));
        show(pickle, node->call.arguments, out);
        break;
    case PT_PICKLE_STORAGE:
        buffer_text(out, "@");
        show(pickle, node->call.arguments, out);
        break;
    default:
        buffer_format(out, "%c", brackets[node->kind][0]);
        for (uint32_t i = 0; i < node->items.count; i++) {
            buffer_text(out, i == 0 ? "" : " ");
            show(pickle, pt_pickle_item(pickle, node, i), out);
        }
        buffer_format(out, "%c", brackets[node->kind][1]);
    }
}

/* Reads exactly these bytes, so that a read beyond them is found out. Returns the tree, or NULL and the message. */
static char *read_tree(const char *bytes, size_t length, struct error *err)
{
    struct pt_pickle pickle;
    struct buffer out;
    char *exact = malloc(length + 1), *text = NULL;
    memcpy(exact + 1, bytes, length);
    pt_pickle_init(&pickle);
    if (pt_pickle_read(&pickle, exact + 1, length, 1000, err) == ERROR_NONE) {
        buffer_init(&out);
        show(&pickle, pickle.root, &out);
        text = buffer_steal(&out);
        buffer_fini(&out);
    }
    pt_pickle_fini(&pickle);
    free(exact);
    return text;
}

static void expect(const char *bytes, size_t length, const char *tree)
{
    struct error err = ERROR_INIT;
    char *text = read_tree(bytes, length, &err);
    if (text == NULL)
        fail_msg("'%s' expected: %s", tree, err.message);
    assert_string_equal(text, tree);
    free(text);
}

/* `part` must be in the message, which begins with the byte position. */
static void refuse(const char *bytes, size_t length, const char *part)
{
    struct error err = ERROR_INIT;
    char *text = read_tree(bytes, length, &err);
    if (text != NULL)
        fail_msg("'%s' expected, read: %s", part, text);
    if (strstr(err.message, part) == NULL)
        fail_msg("'%s' expected in '%s'", part, err.message);
    assert_memory_equal(err.message, "pickle at byte 1", strlen("pickle at byte 1"));
}

#define READ(text, tree)   expect(text, sizeof text - 1, tree)
#define REFUSE(text, part) refuse(text, sizeof text - 1, part)

static void scalars(void **state)
{
    (void)state;
    READ("\x80\x02N.", "None");
    READ("\x80\x05\x88.", "True");
    READ("\x80\x02\x89.", "False");
    READ("\x80\x02K\xff.", "255");
    READ("\x80\x02M\xff\xff.", "65535");
    READ("\x80\x02J\xfe\xff\xff\xff.", "-2");
    READ("\x80\x02\x8a\0.", "0");
    READ("\x80\x02\x8a\1\xff.", "-1");
    READ("\x80\x02\x8a\5\0\0\0\0\1.", "4294967296");
    READ("\x80\x02\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.", "9223372036854775807");
    READ("\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0.", "big9");
    READ("\x80\x02\x8b\1\0\0\0\x80.", "-128");
    READ("\x80\x02G\x3f\xf8\0\0\0\0\0\0.", "1.5");
    READ("\x80\x02X\2\0\0\0\xc3\xa9.", "'\xc3\xa9'");
    READ("\x80\x04\x95\3\0\0\0\0\0\0\0\x8c\1a.", "'a'");
    READ("\x80\x04\x8d\1\0\0\0\0\0\0\0a.", "'a'");
    READ("\x80\x02U\1a.", "'a'");
    READ("\x80\x02T\1\0\0\0a.", "'a'");
    READ("\x80\x03"
         "C\1a.",
         "b'a'");
    READ("\x80\x03"
         "B\1\0\0\0a.",
         "b'a'");
}

static void containers(void **state)
{
    (void)state;
    READ("\x80\x02).", "()");
    READ("\x80\x02K\1\x85.", "(1)");
    READ("\x80\x02K\1K\2\x86.", "(1 2)");
    READ("\x80\x02K\1K\2K\3\x87.", "(1 2 3)");
    READ("\x80\x02(K\1K\2K\3K\4t.", "(1 2 3 4)");
    READ("\x80\x02(t.", "()");
    READ("\x80\x02].", "[]");
    READ("\x80\x02]K\1a.", "[1]");
    READ("\x80\x02](K\1K\2e(e(K\3e.", "[1 2 3]");
    READ("\x80\x02}K\1K\2s.", "{1 2}");
    READ("\x80\x02}(K\1K\2K\3K\4u.", "{1 2 3 4}");
    READ("\x80\x04\x8f(K\1K\2\x90.", "<1 2>");
    READ("\x80\x04(K\1K\2\x91.", "<1 2>");
    READ("\x80\x02]q\0(X\1\0\0\0aq\1h\1r\0\1\0\0j\1\0\0\0e.", "['a' 'a' 'a']"); /* the same object again */
    READ("\x80\x04]\x94(\x8c\1a\x94h\1e.", "['a' 'a']");
}

static void globals(void **state)
{
    (void)state;
    READ("\x80\x02"
         "ccollections\nOrderedDict\n)RK\1K\2s.",
         "{1 2}");
    READ("\x80\x02"
         "c__builtin__\nset\n](K\1K\2e\x85R.",
         "<1 2>");
    READ("\x80\x02"
         "ctorch\nfloat8_e5m2\n.",
         "torch.float8_e5m2");
    READ("\x80\x04\x8c\5torch\x8c\4Size\x93K\1K\2\x86\x85R.", "torch.Size((1 2))");
    READ("\x80\x02(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
         "0X\3\0\0\0cpuK\1tQ.",
         "@('storage' torch.FloatStorage '0' 'cpu' 1)");
    /* unknown ones stay labels, whatever is done with them */
    READ("\x80\x02"
         "cmy.module\nThing\n)\x81}K\1K\2sb.",
         "?my.module.Thing");
    READ("\x80\x02"
         "cmy\nList\n)RK\1a(K\2e(K\1K\2u.",
         "?my.List");
    READ("\x80\x02"
         "cnumpy.core.multiarray\nscalar\n)R.",
         "numpy.core.multiarray.scalar()");
}

/* P1: machines that are broken. */
static void broken(void **state)
{
    (void)state;
    REFUSE("", "ends without its last opcode");
    REFUSE("\x80", "cut short");
    REFUSE("\x80\x02", "ends without");
    REFUSE("\x80\x02N", "ends without");
    REFUSE("\x80\x01N.", "protocol 1");
    REFUSE("\x80\x06N.", "protocol 6");
    REFUSE("\x80\x02\x80\x02N.", "once");
    REFUSE("\x80\x02N.x", "1 bytes behind");
    REFUSE("\x80\x02.", "0 objects");
    REFUSE("\x80\x02NN.", "2 objects");
    REFUSE("\x80\x02(N.", "1 marks");
    REFUSE("\x80\x02h\0.", "before it was stored");
    REFUSE("\x80\x02Nq\1h\0.", "before it was stored");
    REFUSE("\x80\x02j\xff\xff\xff\xff.", "before it was stored");
    REFUSE("\x80\x02Nr\xff\xff\xff\xff.", "memo number 4294967295");
    REFUSE("\x80\x02q\0.", "needs 1 objects");
    REFUSE("\x80\x02N\x86.", "needs 2 objects");
    REFUSE("\x80\x02]a.", "needs 2 objects");
    REFUSE("\x80\x02N(\x85.", "needs 1 objects"); /* what lies below a mark is not there */
    REFUSE("\x80\x02t.", "without a mark");
    REFUSE("\x80\x02]e.", "without a mark");
    REFUSE("\x80\x02}(K\1u.", "even number");
    REFUSE("\x80\x02NK\1a.", "takes none");
    REFUSE("\x80\x02]K\1K\1s.", "takes none");
    REFUSE("\x80\x04\x93.", "needs 2 objects");
    REFUSE("\x80\x04K\1K\1\x93.", "no text");
    REFUSE("\x80\x02i", "opcode 69");
    REFUSE("\x80\x02N0.", "opcode 30");
    REFUSE("\x80\x02N2.", "opcode 32");
    REFUSE("\x80\x02P1\n.", "opcode 50");
    REFUSE("\x80\x02\x82\1.", "opcode 82");
    REFUSE("\x80\x05\x97.", "opcode 97");
    REFUSE("\x80\x02X\xff\xff\xff\xff"
           "a.",
           "4294967295 bytes are announced"); /* P3 */
    REFUSE("\x80\x02\x8a\xff"
           "a.",
           "255 bytes are announced");
    REFUSE("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
           "a.",
           "bytes are announced");
    REFUSE("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff.", "a frame of");
    REFUSE("\x80\x02"
           "cos",
           "do not end");
    REFUSE("\x80\x02"
           "ctorch\nSize",
           "do not end");
    REFUSE("\x80\x02K\1Q.", "persistent id");
    REFUSE("\x80\x02)Q.", "persistent id");
    REFUSE("\x80\x02X\6\0\0\0module\x85Q.", "persistent id");
}

/* P4: nothing is called, whatever is asked for. */
static void dangerous(void **state)
{
    (void)state;
    REFUSE("\x80\x02"
           "cos\nsystem\nX\1\0\0\0a\x85R.",
           "asks for os.system");
    REFUSE("\x80\x02"
           "cposix\nsystem\n.",
           "asks for posix.system");
    REFUSE("\x80\x02"
           "cos.path\njoin\n.",
           "asks for os.path.join");
    REFUSE("\x80\x02"
           "c__builtin__\neval\n.",
           "asks for __builtin__.eval");
    REFUSE("\x80\x02"
           "ctorch.serialization\nload\n.",
           "asks for torch.serialization.load");
    REFUSE("\x80\x04\x8c\5posix\x94\x8c\6system\x94h\0h\1\x93.", "asks for posix.system");
    REFUSE("\x80\x02"
           "csubprocess\nPo\x1b[31mpen\n.",
           "asks for subprocess.Po?[31mpen");
    REFUSE("\x80\x02X\1\0\0\0a)R.", "no global");
    REFUSE("\x80\x02"
           "ctorch\nSize\nK\1R.",
           "no tuple");
    REFUSE("\x80\x02"
           "ctorch._utils\n_rebuild_tensor_v2\n)\x81.",
           "a new object of torch._utils._rebuild_tensor_v2");
    REFUSE("\x80\x02"
           "ctorch._utils\n_rebuild_tensor_v2\n)R}b.",
           "a state");
    REFUSE("\x80\x02N}b.", "a state");
}

/* P2: sizes and depths. */
static void too_much(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct pt_pickle pickle;
    struct buffer bytes;
    pt_pickle_init(&pickle);
    buffer_init(&bytes);
    buffer_append(&bytes, "\x80\x02", 2);
    for (int i = 0; i < 250000; i++)
        buffer_append(&bytes, "]", 1);
    for (int i = 0; i < 249999; i++)
        buffer_append(&bytes, "a", 1);
    buffer_append(&bytes, ".", 1);
    assert_int_equal(pt_pickle_read(&pickle, bytes.data, bytes.length, 0, &err), ERROR_FORMAT);
    assert_non_null(strstr(err.message, "more than 256 levels"));
    buffer_clear(&bytes);
    buffer_append(&bytes, "\x80\x02", 2);
    for (int i = 0; i < 257; i++)
        buffer_append(&bytes, "(", 1);
    assert_int_equal(pt_pickle_read(&pickle, bytes.data, bytes.length, 0, &err), ERROR_FORMAT);
    assert_non_null(strstr(err.message, "more than 256 marks"));
    buffer_clear(&bytes);
    buffer_append(&bytes, "\x80\x02(", 3);
    for (int i = 0; i < 2000000; i++)
        buffer_append(&bytes, "N", 1);
    buffer_append(&bytes, "t.", 2);
    assert_int_equal(pt_pickle_read(&pickle, bytes.data, bytes.length, 0, &err), ERROR_TOO_LARGE);
    assert_non_null(strstr(err.message, "more than 524288 objects"));
    assert_int_equal(pt_pickle_read(&pickle, bytes.data, PT_PICKLE_BYTES_MAX + 1, 0, &err), ERROR_TOO_LARGE);
    assert_int_equal(pickle.root, PT_PICKLE_NONE);
    buffer_fini(&bytes);

    /* A list that contains itself, and one that contains another 2^60 times. */
    static const char self[] = "\x80\x02]q\0h\0a.";
    assert_int_equal(pt_pickle_read(&pickle, self, sizeof self - 1, 0, &err), ERROR_NONE);
    assert_int_equal(pt_pickle_unusable(&pickle, pickle.root), PT_PICKLE_NONE);
    buffer_init(&bytes);
    buffer_append(&bytes, "\x80\x02]q\0", 5);
    for (int i = 0; i < 60; i++)
        buffer_append(&bytes, "0](h\0h\0eq\0" + 1, 9);
    buffer_append(&bytes, "\x86", 1);
    for (int i = 0; i < 59; i++)
        buffer_append(&bytes, "\x86", 1);
    buffer_append(&bytes, ".", 1);
    assert_int_equal(pt_pickle_read(&pickle, bytes.data, bytes.length, 0, &err), ERROR_NONE);
    assert_int_equal(pt_pickle_unusable(&pickle, pickle.root), PT_PICKLE_NONE);
    buffer_fini(&bytes);
    pt_pickle_fini(&pickle);
}

static void members(void **state)
{
    (void)state;
    static const char bytes[] = "\x80\x02}(X\1\0\0\0aK\1X\1\0\0\0bK\2X\1\0\0\0aK\3K\1K\4u.";
    struct pt_pickle pickle;
    pt_pickle_init(&pickle);
    assert_int_equal(pt_pickle_read(&pickle, bytes, sizeof bytes - 1, 0, NULL), ERROR_NONE);
    uint32_t found = pt_pickle_member(&pickle, pickle.root, "a", 1);
    assert_int_equal(pt_pickle_node(&pickle, found)->integer, 3); /* the last one, as Python has it */
    assert_int_equal(pt_pickle_member(&pickle, pickle.root, "c", 1), PT_PICKLE_NONE);
    assert_int_equal(pt_pickle_member(&pickle, found, "a", 1), PT_PICKLE_NONE);
    assert_int_equal(pt_pickle_member(&pickle, PT_PICKLE_NONE, "a", 1), PT_PICKLE_NONE);
    pt_pickle_fini(&pickle);
}

/* Every bit of a real pickle turned, and the pickle cut at every byte: read or refused, nothing else. */
static void every_byte(void **state)
{
    (void)state;
    static const char tensor[] = "\x80\x02}q\0(X\5\0\0\0valueq\1ctorch._utils\n_rebuild_tensor_v2\nq\2(("
                                 "X\7\0\0\0storageq\3ctorch\nFloatStorage\n"
                                 "q\4X\1\0\0\0"
                                 "0q\5X\3\0\0\0cpuq\6K\6tq\7QK\0K\2K\3\x86q\x08K\3K\1\x86q\x09\x89"
                                 "ccollections\nOrderedDict\nq\x0a)Rq\x0btq\x0cRq\x0dX\4\0\0\0metaq\x0e}q\x0fuu.";
    enum { LENGTH = sizeof tensor - 1 };
    for (size_t i = 0; i < LENGTH; i++) {
        char *text = read_tree(tensor, i, NULL);
        assert_null(text);
        for (unsigned bit = 0; bit < 8; bit++) {
            char copy[LENGTH];
            memcpy(copy, tensor, LENGTH);
            copy[i] = (char)(copy[i] ^ 1 << bit);
            free(read_tree(copy, LENGTH, NULL));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars), cmocka_unit_test(containers), cmocka_unit_test(globals),
        cmocka_unit_test(broken),  cmocka_unit_test(dangerous),  cmocka_unit_test(too_much),
        cmocka_unit_test(members), cmocka_unit_test(every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
