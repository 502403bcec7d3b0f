# src/pt: the only room that knows torch's file format
noinst_LIBRARIES += libpt.a
libpt_a_SOURCES = \
    src/pt/pt_crc32.c src/pt/pt_crc32.h \
    src/pt/pt_dtype.c src/pt/pt_dtype.def src/pt/pt_dtype.h \
    src/pt/pt_file.c src/pt/pt_file.h src/pt/pt_file_private.h \
    src/pt/pt_file_elements.c \
    src/pt/pt_globals.c src/pt/pt_globals.def src/pt/pt_globals.h \
    src/pt/pt_npy.c src/pt/pt_npy.h \
    src/pt/pt_open.c src/pt/pt_open.h \
    src/pt/pt_pickle.c src/pt/pt_pickle.h \
    src/pt/pt_pickle_tree.c \
    src/pt/pt_stack.c src/pt/pt_stack.h \
    src/pt/pt_summary.c src/pt/pt_summary.h \
    src/pt/pt_tensor.c src/pt/pt_tensor.h \
    src/pt/pt_zip.c src/pt/pt_zip.h src/pt/pt_zip_private.h \
    src/pt/pt_zip_payload.c
