# src/sys: see HACKING.md for what lives here
noinst_LIBRARIES += libsys.a
libsys_a_CPPFLAGS = $(AM_CPPFLAGS) $(SYSTEMD_CFLAGS)
libsys_a_SOURCES = \
    src/sys/admin.c src/sys/admin.h \
    src/sys/admin_names.c src/sys/admin_names.h \
    src/sys/admin_set.c src/sys/admin_set.h \
    src/sys/audit_json.c src/sys/audit_json.h \
    src/sys/cgroup.c src/sys/cgroup.h \
    src/sys/cgroup_control.c src/sys/cgroup_control.h \
    src/sys/cgroup_run.c src/sys/cgroup_run.h \
    src/sys/dump_folder.c src/sys/dump_folder.h \
    src/sys/environment.c src/sys/environment.h \
    src/sys/file.c src/sys/file.h \
    src/sys/file_below.c src/sys/file_below.h \
    src/sys/keeper.c src/sys/keeper.h \
    src/sys/keeper_child.c src/sys/keeper_child.h \
    src/sys/kill_tree.c src/sys/kill_tree.h \
    src/sys/launch.c src/sys/launch.h \
    src/sys/launch_spawn.c src/sys/launch_spawn.h \
    src/sys/listener.c src/sys/listener.h \
    src/sys/passing.c src/sys/passing.h \
    src/sys/process.c src/sys/process.h \
    src/sys/run_json.c src/sys/run_json.h \
    src/sys/runtime.c src/sys/runtime.h \
    src/sys/shared_memory.c src/sys/shared_memory.h \
    src/sys/sibling.c src/sys/sibling.h \
    src/sys/sink.c src/sys/sink.h \
    src/sys/sink_log.c src/sys/sink_log.h \
    src/sys/socket_peer.c src/sys/socket_peer.h \
    src/sys/slow.c src/sys/slow.h \
    src/sys/space.c src/sys/space.h \
    src/sys/stop_tree.c src/sys/stop_tree.h \
    src/sys/thread.c src/sys/thread.h \
    src/sys/written.c src/sys/written.h \
    src/sys/systemd.c src/sys/systemd.h \
    src/sys/systemd_job.c src/sys/systemd_job.h \
    src/sys/systemd_unit.c src/sys/systemd_unit.h
