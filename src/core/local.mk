noinst_LIBRARIES += libcore.a
libcore_a_SOURCES = \
    src/core/audit.c src/core/audit.h \
    src/core/methods.def \
    src/core/backstop.c src/core/backstop.h \
    src/core/run.c src/core/run.h src/core/run_internal.h src/core/run_states.def src/core/run_outcomes.def \
    src/core/run_dump.c src/core/run_end.c src/core/run_space.c src/core/run_start.c \
    src/core/run_plain.c src/core/run_suspend.c src/core/run_watch.c \
    src/core/server.c src/core/server.h \
    src/core/space.c src/core/space.h \
    src/core/space_start.c src/core/space_start.h
