# src/sglang: the only room that knows SGLang's names, settings and answers
noinst_LIBRARIES += libsglang.a
libsglang_a_SOURCES = \
    src/sglang/dump_name.c src/sglang/dump_name.h
