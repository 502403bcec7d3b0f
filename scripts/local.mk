dist_noinst_SCRIPTS += scripts/demo scripts/test examples/client.py examples/state_probe.py
EXTRA_DIST += scripts/build scripts/packages
