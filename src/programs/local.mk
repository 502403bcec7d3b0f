# src/programs: see HACKING.md for what lives here

bin_PROGRAMS += kldumpctl
kldumpctl_SOURCES = src/programs/kldumpctl.c
kldumpctl_LDADD = libctl.a libanalysis.a libpt.a libsglang.a libhttp.a libsys.a libjson.a libcore.a libconf.a libbase.a \
    $(CURL_LIBS) $(CJSON_LIBS) $(INIH_LIBS) $(SYSTEMD_LIBS) -lm

pkglibexec_PROGRAMS += kldump-keeper
kldump_keeper_SOURCES = src/programs/kldump-keeper.c
kldump_keeper_LDADD = libsys.a

pkglibexec_PROGRAMS += kldump-run
kldump_run_SOURCES = src/programs/kldump-run.c
kldump_run_LDADD = libloop.a libsglang.a libhttp.a libsys.a libjson.a libcore.a libconf.a libbase.a \
    $(UV_LIBS) $(CURL_LIBS) $(CJSON_LIBS) $(INIH_LIBS) $(SYSTEMD_LIBS) -lm

sbin_PROGRAMS += kldumpd
kldumpd_SOURCES = src/programs/kldumpd.c
kldumpd_LDADD = libloop.a libsys.a libjson.a libcore.a libconf.a libbase.a \
    $(UV_LIBS) $(SYSTEMD_LIBS) $(CJSON_LIBS) $(INIH_LIBS) -lm
