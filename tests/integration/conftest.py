"""Fixtures of the integration tests: a place for each test, the two servers, and runs that are armed once for many tests."""
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import guarded  # noqa: E402

os.environ.setdefault("KLDUMP_BUILD_DIR", str(guarded.BUILD))

SERVERS = ["standin", pytest.param("real", marks=pytest.mark.real)]


def pytest_configure(config):
    config.addinivalue_line("markers", "real: needs the real SGLang (scripts/test --quick leaves these out)")
    os.umask(0o022)  # other users must reach what is installed and copied for them
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTSTP, signal.SIGQUIT):  # ignored under nohup, or in the background of a script
        signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """In continuous integration nothing may be skipped."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} may not be skipped with CI=true: {reason}"


@pytest.fixture(scope="session")
def servers():
    """name -> server, made when it is first asked for."""
    with tempfile.TemporaryDirectory(prefix="kli-model-", dir="/tmp") as model:
        made = {}

        def get(name):
            if name not in made:
                try:  # "standin", "real", or a release of the real one
                    version = guarded.VERSION if name == "real" else name
                    made[name] = guarded.StandIn() if name == "standin" else guarded.real_server(Path(model), version)
                except guarded.cache_folder.Missing as missing:
                    pytest.skip(f"missing: {missing}")
            return made[name]
        yield get


@pytest.fixture(params=SERVERS)
def server(request, servers):
    return servers(request.param)


@pytest.fixture
def standin(servers):
    return servers("standin")


@pytest.fixture
def place():
    made = guarded.Place()
    yield made
    left = made.end()
    assert not left, "left behind:\n" + "\n".join(left)


@pytest.fixture(scope="module", params=SERVERS)
def armed(request, servers):
    """A run that is armed, for the tests of a module that leave it armed."""
    made = guarded.Place()
    run = None
    try:
        run = made.run(servers(request.param), flags=["--api-key", KEY]).armed()
        yield run
    finally:
        left = made.end() if run is None else end_armed(made, run)
    assert not left, "left behind:\n" + "\n".join(left)


KEY = "correct-horse-battery"


def end_armed(made, run):
    if run.process.poll() is None:
        made.ctl("stop", run.name, status=None)
        run.exit(60)
    return made.end()
