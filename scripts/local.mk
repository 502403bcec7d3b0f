dist_noinst_SCRIPTS += scripts/test
EXTRA_DIST += scripts/build scripts/packages
