# src/programs: see HACKING.md for what lives here

bin_PROGRAMS += kldumpctl
kldumpctl_SOURCES = src/programs/kldumpctl.c
kldumpctl_LDADD = libctl.a libconf.a libbase.a $(INIH_LIBS)

pkglibexec_PROGRAMS += kldump-keeper
kldump_keeper_SOURCES = src/programs/kldump-keeper.c
kldump_keeper_LDADD = libsys.a
