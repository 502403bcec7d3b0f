noinst_LIBRARIES += libjson.a
libjson_a_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
libjson_a_SOURCES = \
    src/json/json.c src/json/json.h \
    src/json/json_print.c \
    src/json/json_scan.c src/json/json_scan.h
