# systemd: units, the admins' group, the runtime folder. The real folders are known only to make, since they may hold
# ${prefix}.
systemdsystemunitdir = @systemdsystemunitdir@
systemduserunitdir = @systemduserunitdir@
sysusersdir = @sysusersdir@
tmpfilesdir = @tmpfilesdir@
EXTRA_DIST += systemd/kldumpd.service.in systemd/user/kldumpd.service.in systemd/kldump.sysusers systemd/kldump.tmpfiles
dist_systemdsystemunit_DATA = systemd/kldumpd.socket
nodist_systemdsystemunit_DATA = systemd/kldumpd.service
dist_systemduserunit_DATA = systemd/user/kldumpd.socket
nodist_systemduserunit_DATA = systemd/user/kldumpd.service
nodist_sysusers_DATA = systemd/sysusers/kldump.conf
nodist_tmpfiles_DATA = systemd/tmpfiles/kldump.conf
CLEANFILES += $(nodist_systemdsystemunit_DATA) $(nodist_systemduserunit_DATA) $(nodist_sysusers_DATA) $(nodist_tmpfiles_DATA)

systemd/kldumpd.service systemd/user/kldumpd.service: %: %.in Makefile
	$(AM_V_GEN)$(MKDIR_P) $(@D) && sed 's|@sbindir[@]|$(sbindir)|g' $< >$@.tmp && mv $@.tmp $@
# In the tree named after what reads them, installed under one name.
systemd/sysusers/kldump.conf: systemd/kldump.sysusers
	$(AM_V_GEN)$(MKDIR_P) $(@D) && cp $< $@
systemd/tmpfiles/kldump.conf: systemd/kldump.tmpfiles
	$(AM_V_GEN)$(MKDIR_P) $(@D) && cp $< $@
