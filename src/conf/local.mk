# src/conf: see HACKING.md for what lives here
noinst_LIBRARIES += libconf.a
libconf_a_CPPFLAGS = $(AM_CPPFLAGS) $(INIH_CFLAGS)
libconf_a_SOURCES = \
    src/conf/ini_lines.c src/conf/ini_lines.h \
    src/conf/rules.c src/conf/rules.h src/conf/rules.def src/conf/rules_table.h \
    src/conf/rules_difference.c \
    src/conf/rules_parse.c \
    src/conf/rules_sample.c \
    src/conf/settings.c src/conf/settings.h src/conf/settings.def src/conf/settings_table.h \
    src/conf/settings_parse_arguments.c \
    src/conf/settings_parse_file.c \
    src/conf/settings_help.c \
    src/conf/settings_random_name.c
