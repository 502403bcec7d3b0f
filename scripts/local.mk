dist_noinst_SCRIPTS += scripts/demo scripts/test examples/client.py
EXTRA_DIST += scripts/build scripts/packages
