# src/ctl: see HACKING.md for what lives here
noinst_LIBRARIES += libctl.a
libctl_a_SOURCES = \
    src/ctl/command.c src/ctl/command.h \
    src/ctl/command_check.c \
    src/ctl/command_help.c \
    src/ctl/commands.c \
    src/ctl/output.c src/ctl/output.h
