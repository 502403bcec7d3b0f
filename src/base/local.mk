noinst_LIBRARIES += libbase.a
libbase_a_SOURCES = \
    src/base/buffer.c src/base/buffer.h \
    src/base/duration.c src/base/duration.h \
    src/base/error.c src/base/error.h src/base/error.def \
    src/base/hash.c src/base/hash.h \
    src/base/list.c src/base/list.h \
    src/base/mask.c src/base/mask.h \
    src/base/memory.c src/base/memory.h \
    src/base/number.c src/base/number.h \
    src/base/random.c src/base/random.h \
    src/base/size.c src/base/size.h \
    src/base/status.def \
    src/base/text.c src/base/text.h
