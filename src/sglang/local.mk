# src/sglang: the only room that knows SGLang's names, settings and answers
noinst_LIBRARIES += libsglang.a
libsglang_a_SOURCES = \
    src/sglang/answers.c src/sglang/answers.h \
    src/sglang/command.c src/sglang/command.h \
    src/sglang/dump_name.c src/sglang/dump_name.h \
    src/sglang/filter.c src/sglang/filter.h \
    src/sglang/filter_pattern.c src/sglang/filter_pattern.h \
    src/sglang/flags.c src/sglang/flags.h \
    src/sglang/generate.c src/sglang/generate.h \
    src/sglang/generate_read.c \
    src/sglang/generate_server.c \
    src/sglang/generate_tokenize.c \
    src/sglang/kl_helper.c src/sglang/kl_helper.h \
    src/sglang/info.c src/sglang/info.h \
    src/sglang/lines.c src/sglang/lines.h \
    src/sglang/module_class.c src/sglang/module_class.h src/sglang/module_class.def \
    src/sglang/needs.c src/sglang/needs.h \
    src/sglang/operator_script.c src/sglang/operator_script.h \
    src/sglang/prefix.c src/sglang/prefix.h \
    src/sglang/probe.c src/sglang/probe.h \
    src/sglang/probe_view.c src/sglang/probe_view.h \
    src/sglang/questions.c src/sglang/questions.h \
    src/sglang/recipe.c src/sglang/recipe.h \
    src/sglang/request_id.c src/sglang/request_id.h \
    src/sglang/respell.c src/sglang/respell.h \
    src/sglang/settings.c src/sglang/settings.h \
    src/sglang/sglang.c src/sglang/sglang.h \
    src/sglang/vary.c src/sglang/vary.h \
    src/sglang/versions.c src/sglang/versions.h
