# man
dist_man_MANS += man/kldumpd.8
dist_man_MANS += man/kldumpctl.1
dist_man_MANS += man/kldumpd.conf.5
