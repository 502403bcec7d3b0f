# src/loop: see HACKING.md for what lives here
noinst_LIBRARIES += libloop.a
libloop_a_CPPFLAGS = $(AM_CPPFLAGS) $(UV_CFLAGS)
libloop_a_SOURCES = \
    src/loop/child.c src/loop/child.h \
    src/loop/clock.c src/loop/clock.h \
    src/loop/control.c src/loop/control.h src/loop/control_private.h \
    src/loop/control_bind.c \
    src/loop/control_frame.c \
    src/loop/control_account.c \
    src/loop/control_peer.c \
    src/loop/daemon.c src/loop/daemon.h src/loop/daemon_private.h \
    src/loop/daemon_access.c \
    src/loop/daemon_backstop.c \
    src/loop/daemon_backstop_disk.c src/loop/daemon_backstop_disk.h \
    src/loop/daemon_connect.c src/loop/daemon_connect.h \
    src/loop/daemon_dead.c \
    src/loop/daemon_find.c \
    src/loop/daemon_names.c \
    src/loop/daemon_ended.c \
    src/loop/daemon_keep.c \
    src/loop/daemon_last.c \
    src/loop/daemon_list.c \
    src/loop/daemon_owned.c \
    src/loop/daemon_peer.c src/loop/daemon_peer.h \
    src/loop/daemon_plan.c src/loop/daemon_plan.h \
    src/loop/daemon_relay.c \
    src/loop/daemon_retain.c \
    src/loop/daemon_rules.c \
    src/loop/daemon_runs.c \
    src/loop/daemon_service.c \
    src/loop/daemon_start.c \
    src/loop/daemon_watch.c \
    src/loop/guard.c src/loop/guard.h src/loop/guard_private.h \
    src/loop/guard_after.c \
    src/loop/guard_busy.c \
    src/loop/guard_check.c \
    src/loop/guard_control.c \
    src/loop/guard_effects.c \
    src/loop/guard_launch.c \
    src/loop/guard_log.c src/loop/guard_log.h \
    src/loop/guard_register.c \
    src/loop/guard_report.c \
    src/loop/guard_server.c \
    src/loop/guard_setup.c \
    src/loop/guard_signals.c \
    src/loop/guard_space.c \
    src/loop/guard_space_check.c \
    src/loop/guard_suspend.c \
    src/loop/guard_survey.c \
    src/loop/output.c src/loop/output.h \
    src/loop/registry.c src/loop/registry.h src/loop/registry_private.h \
    src/loop/registry_packet.c \
    src/loop/registry_peer.c \
    src/loop/survey.c src/loop/survey.h \
    src/loop/survey_look.c src/loop/survey_look.h \
    src/loop/transfers.c src/loop/transfers.h \
    src/loop/watcher.c src/loop/watcher.h
