# src/programs: see HACKING.md for what lives here

bin_PROGRAMS += kldumpctl
kldumpctl_SOURCES = src/programs/kldumpctl.c
kldumpctl_LDADD = libctl.a libconf.a libbase.a $(INIH_LIBS)
