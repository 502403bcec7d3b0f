noinst_LIBRARIES += libcore.a
libcore_a_SOURCES = \
    src/core/audit.c src/core/audit.h \
    src/core/methods.def \
    src/core/server.c src/core/server.h \
    src/core/space.c src/core/space.h
