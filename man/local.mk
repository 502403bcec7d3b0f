# man
dist_man_MANS += man/kldumpd.8
