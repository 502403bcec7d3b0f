# src/programs: see HACKING.md for what lives here

bin_PROGRAMS += kldumpctl
kldumpctl_SOURCES = src/programs/kldumpctl.c
kldumpctl_LDADD = libctl.a libbase.a
