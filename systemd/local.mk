# systemd: units. The real folders are known only to make, since they may hold ${prefix}.
systemdsystemunitdir = @systemdsystemunitdir@
EXTRA_DIST += systemd/kldumpd.service.in
nodist_systemdsystemunit_DATA = systemd/kldumpd.service
CLEANFILES += systemd/kldumpd.service
systemd/kldumpd.service: systemd/kldumpd.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && \
	sed 's|@sbindir[@]|$(sbindir)|g' $(srcdir)/systemd/kldumpd.service.in >$@.tmp && mv $@.tmp $@
