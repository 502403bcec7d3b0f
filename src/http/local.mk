# src/http: see HACKING.md for what lives here
noinst_LIBRARIES += libhttp.a
libhttp_a_CPPFLAGS = $(AM_CPPFLAGS) $(CURL_CFLAGS)
libhttp_a_SOURCES = \
    src/http/blocking.c src/http/blocking.h \
    src/http/multi.c src/http/multi.h \
    src/http/transfer.c src/http/transfer.h src/http/transfer_handle.h
