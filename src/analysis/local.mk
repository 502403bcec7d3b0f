# src/analysis: what dump files tell, without SGLang, the network or the guard
noinst_LIBRARIES += libanalysis.a
libanalysis_a_SOURCES = \
    src/analysis/audit_counters.c \
    src/analysis/audit_coverage.c \
    src/analysis/audit_ending.c \
    src/analysis/audit_folder.c src/analysis/audit_folder.h \
    src/analysis/audit_passes.c \
    src/analysis/audit_probe.c src/analysis/audit_probe.h \
    src/analysis/audit_reasons.c src/analysis/audit_reasons.h src/analysis/audit_reasons.def \
    src/analysis/audit_signatures.c \
    src/analysis/audit_table.c src/analysis/audit_table.h \
    src/analysis/audit_work.h \
    src/analysis/alignment.c src/analysis/alignment.h src/analysis/alignment_match.c src/analysis/alignment_tell.c \
    src/analysis/alignment_work.h src/analysis/diff.c src/analysis/diff.h src/analysis/diff_kinds.def src/analysis/diff_messages.def \
    src/analysis/diff_proofs.def src/analysis/numbers.c src/analysis/numbers.h \
    src/analysis/numbers_fast.c src/analysis/numbers_fast.h \
    src/analysis/numbers_part.c src/analysis/numbers_part.h \
    src/analysis/numbers_values.c \
    src/analysis/investigation.c src/analysis/investigation.h src/analysis/investigation_private.h \
    src/analysis/investigation_evidence.c \
    src/analysis/investigation_facts.c \
    src/analysis/investigation_html.c src/analysis/investigation_html.h \
    src/analysis/investigation_ends.def src/analysis/investigation_steps.def \
    src/analysis/report.c src/analysis/report.h \
    src/analysis/report_html.c src/analysis/report_html.h src/analysis/report_html_private.h \
    src/analysis/report_html_blind.c \
    src/analysis/report_html_charts.c \
    src/analysis/report_html_detail.c \
    src/analysis/report_html_maps.c \
    src/analysis/report_html_plan.c \
    src/analysis/report_html_style.c \
    src/analysis/report_json.c src/analysis/report_json.h \
    src/analysis/segment.c src/analysis/segment.h \
    src/analysis/side.c src/analysis/side.h \
    src/analysis/side_core.c \
    src/analysis/side_passes.c \
    src/analysis/side_prefix.c \
    src/analysis/side_sequences.c \
    src/analysis/side_work.h
# What `kldumpctl diff` compares and concludes.
libanalysis_a_SOURCES += \
    src/analysis/compare.c src/analysis/compare.h \
    src/analysis/compare_rows.c src/analysis/compare_rows.h \
    src/analysis/diff_run.c \
    src/analysis/evidence.c src/analysis/evidence.h \
    src/analysis/history.c src/analysis/history.h \
    src/analysis/observations.c src/analysis/observations.h \
    src/analysis/observations_calls.c src/analysis/observations_calls.h \
    src/analysis/proofs.c src/analysis/proofs.h \
    src/analysis/proofs_embedding.c \
    src/analysis/rows.c src/analysis/rows.h \
    src/analysis/scan.h \
    src/analysis/text_map.c src/analysis/text_map.h \
    src/analysis/verdict.c src/analysis/verdict.h \
    src/analysis/verdict_text.c src/analysis/verdict_text.h \
    src/analysis/invariance.c src/analysis/invariance.h \
    src/analysis/kl.c src/analysis/kl.h src/analysis/kl_paths.def \
    src/analysis/kl_explain.c src/analysis/kl_explain.h \
    src/analysis/kl_reading.c src/analysis/kl_reading_evidence.c \
    src/analysis/kl_reading_facts.c src/analysis/kl_reading_private.h \
    src/analysis/kl_vary.c src/analysis/kl_vary.h
# What `kldumpctl state-diff` compares.
libanalysis_a_SOURCES += src/analysis/state_diff.c src/analysis/state_diff.h
# What `kldumpctl ab` compares.
libanalysis_a_SOURCES += src/analysis/ab.c src/analysis/ab.h \
    src/analysis/workers.c src/analysis/workers.h
