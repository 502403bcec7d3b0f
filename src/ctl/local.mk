# src/ctl: see HACKING.md for what lives here
noinst_LIBRARIES += libctl.a
libctl_a_SOURCES = \
    src/ctl/capture.c src/ctl/capture.h \
    src/ctl/capture_result.c src/ctl/capture_result.h \
    src/ctl/client.c src/ctl/client.h \
    src/ctl/command.c src/ctl/command.h \
    src/ctl/command_capture.c \
    src/ctl/ab_read.c src/ctl/ab_read.h \
    src/ctl/ab_read_both.c \
    src/ctl/command_ab.c \
    src/ctl/command_check.c \
    src/ctl/command_diff.c \
    src/ctl/command_doctor.c \
    src/ctl/command_dump.c \
    src/ctl/command_events.c \
    src/ctl/command_help.c \
    src/ctl/command_invariance.c \
    src/ctl/command_investigate.c \
    src/ctl/command_kl.c \
    src/ctl/command_list.c \
    src/ctl/command_logs.c \
    src/ctl/command_metrics.c \
    src/ctl/command_pause.c \
    src/ctl/command_run.c \
    src/ctl/command_show.c \
    src/ctl/command_start.c \
    src/ctl/command_state_diff.c \
    src/ctl/command_status.c \
    src/ctl/command_stop.c \
    src/ctl/command_wait.c \
    src/ctl/commands.c \
    src/ctl/dump_session.c src/ctl/dump_session.h \
    src/ctl/endpoint.c src/ctl/endpoint.h \
    src/ctl/endpoint_model.c src/ctl/endpoint_model.h \
    src/ctl/held_run.c src/ctl/held_run.h \
    src/ctl/doctor.c src/ctl/doctor.h \
    src/ctl/doctor_left.c \
    src/ctl/doctor_machine.c \
    src/ctl/doctor_network.c \
    src/ctl/doctor_server.c \
    src/ctl/doctor_space.c \
    src/ctl/find.c src/ctl/find.h \
    src/ctl/find_all.c \
    src/ctl/find_folder.c src/ctl/find_folder.h \
    src/ctl/find_places.c src/ctl/find_places.h \
    src/ctl/find_text.c \
    src/ctl/follow.c src/ctl/follow.h \
    src/ctl/foreign.c src/ctl/foreign.h \
    src/ctl/inspect.h \
    src/ctl/inspect_file.c \
    src/ctl/inspect_folder.c \
    src/ctl/inspect_tree.c \
    src/ctl/interrupt.c src/ctl/interrupt.h \
    src/ctl/invariance_dump.c src/ctl/invariance_dump.h \
    src/ctl/invariance_inputs.c src/ctl/invariance_inputs.h \
    src/ctl/invariance_report.c src/ctl/invariance_report.h \
    src/ctl/invariance_take.c src/ctl/invariance_take.h \
    src/ctl/investigate.h \
    src/ctl/investigate_prompts.c \
    src/ctl/investigate_read.c src/ctl/investigate_read.h \
    src/ctl/investigate_report.c src/ctl/investigate_report.h \
    src/ctl/investigate_report_json.c \
    src/ctl/investigate_run.c \
    src/ctl/investigate_state.c \
    src/ctl/investigate_steps.c \
    src/ctl/investigate_time.c \
    src/ctl/kl_ask.c src/ctl/kl_ask.h \
    src/ctl/kl_explain_report.c src/ctl/kl_explain_report.h \
    src/ctl/kl_explain_take.c src/ctl/kl_explain_take.h \
    src/ctl/kl_paths.c src/ctl/kl_paths.h \
    src/ctl/kl_report.h \
    src/ctl/kl_report_json.c \
    src/ctl/kl_report_text.c \
    src/ctl/kl_take.c src/ctl/kl_take.h \
    src/ctl/kl_thresholds.c src/ctl/kl_thresholds.h \
    src/ctl/kl_vary.c src/ctl/kl_vary.h \
    src/ctl/kl_vary_report.c src/ctl/kl_vary_report.h \
    src/ctl/metrics.c src/ctl/metrics.h \
    src/ctl/now.c src/ctl/now.h \
    src/ctl/options.c src/ctl/options.h \
    src/ctl/output.c src/ctl/output.h \
    src/ctl/progress.c src/ctl/progress.h \
    src/ctl/report_text.c src/ctl/report_text.h \
    src/ctl/report_text_strip.c \
    src/ctl/result_file.c src/ctl/result_file.h \
    src/ctl/runs_table.c src/ctl/runs_table.h \
    src/ctl/screen.c src/ctl/screen.h \
    src/ctl/prompts.c src/ctl/prompts.h \
    src/ctl/seal.c src/ctl/seal.h \
    src/ctl/show.c src/ctl/show.h \
    src/ctl/show_why.c \
    src/ctl/shell_words.c src/ctl/shell_words.h \
    src/ctl/spark.c src/ctl/spark.h \
    src/ctl/spawn.c src/ctl/spawn.h \
    src/ctl/start_request.c src/ctl/start_request.h \
    src/ctl/watch.c src/ctl/watch.h
