# src/pt: the only room that knows torch's file format
noinst_LIBRARIES += libpt.a
libpt_a_SOURCES = \
    src/pt/pt_text_list.c src/pt/pt_text_list.h \
    src/pt/pt_zip.c src/pt/pt_zip.h \
    src/pt/pt_dtype.def src/pt/pt_dtype.h src/pt/pt_file.h
