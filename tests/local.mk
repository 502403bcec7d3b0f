include tests/unit/local.mk
include tests/sim/local.mk
include tests/lint/local.mk
include tests/standin/local.mk
include tests/integration/local.mk
include tests/bench/local.mk
include tests/fuzz/local.mk
include tests/real/local.mk
