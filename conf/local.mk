# conf: the sample of the admin's rules. Not in sysconfdir: an upgrade must not touch what the admin wrote.
examplesdir = $(docdir)/examples
dist_examples_DATA = conf/kldumpd.conf
