"""TLS with a certificate that nobody has signed, for another address; with keys, on all addresses and on IPv6."""
import subprocess
from pathlib import Path

import pytest
from guarded import PYTHON

FRONT = Path(__file__).with_name("tls_front.py")
KEY, ADMIN_KEY = "key-of-clients-5ecret", "key-of-admins-5ecret"


@pytest.mark.parametrize("host", ["0.0.0.0", "::1"])
def test_tls_and_keys(place, standin, host):
    certificate, private = place.folder / "certificate.pem", place.folder / "private.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", private, "-out", certificate, "-days", "2",
                    "-subj", "/CN=elsewhere.example"], check=True, capture_output=True)
    command = [PYTHON, "-B", FRONT, "--server", standin.python(place), "--host", host, "--port", str(place.port()), "--ssl-certfile", certificate,
               "--ssl-keyfile", private, "--model-path", standin.model(place), *standin.flags(), "--api-key", KEY, "--admin-api-key", ADMIN_KEY]
    run = place.run(standin, command=[str(word) for word in command]).armed()
    assert run.status()["state"] == "armed"
    run.dump("dec")
    assert run.status()["state"] == "dumping"
    texts = [place.ctl("pause", "t", status=4).stdout]  # no pass was dumped
    texts += [place.ctl(command, "t", *more).stdout for command in ("status", "events") for more in ([], ["--json"])]
    place.ctl("stop", "t")
    run.exits_with(0)
    texts += ["\n".join(line for line in run.output.splitlines() if line.startswith("kldump:"))]  # the others are the server's own
    texts += [path.read_text() for path in [*run.folder.rglob("*.json"), *run.directory.rglob("*.json")]]
    assert "***" in texts[2] and len(texts) > 7
    for secret in (KEY, ADMIN_KEY):
        assert not [text[max(0, text.find(secret) - 200):][:300] for text in texts if secret in text]
