# src/sys: see HACKING.md for what lives here
noinst_LIBRARIES += libsys.a
libsys_a_CPPFLAGS = $(AM_CPPFLAGS) $(SYSTEMD_CFLAGS)
libsys_a_SOURCES = \
    src/sys/audit_json.c src/sys/audit_json.h \
    src/sys/cgroup.c src/sys/cgroup.h \
    src/sys/cgroup_control.c src/sys/cgroup_control.h \
    src/sys/keeper.c src/sys/keeper.h \
    src/sys/kill_tree.c src/sys/kill_tree.h \
    src/sys/process.c src/sys/process.h \
    src/sys/sibling.c src/sys/sibling.h \
    src/sys/systemd.c src/sys/systemd.h
