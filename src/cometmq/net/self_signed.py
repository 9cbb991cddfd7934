"""A self-signed certificate for servers that were given none: made in memory, loaded, and never kept on disk.

The package ``cryptography`` makes it when installed, else the ``openssl`` program does.
Blocking: call it in any thread but the loop's.
"""

from __future__ import annotations

import datetime
import os
import ssl
import subprocess
import tempfile
from pathlib import Path

from cometmq.errors import ConfigError

VALIDITY_DAYS = 3650
COMMON_NAME = "cometmq"
OPENSSL_TIMEOUT_SECONDS = 10


def load_self_signed(context: ssl.SSLContext) -> None:
    """Make a key and a certificate and give them to ``context``."""
    with tempfile.TemporaryDirectory(prefix="cometmq-tls-") as directory:  # mode 0700
        key, certificate = Path(directory, "key.pem"), Path(directory, "certificate.pem")
        try:
            _write_with_cryptography(key, certificate)
        except ImportError:
            write_with_openssl(key, certificate)
        context.load_cert_chain(certificate, key)


def _write_with_cryptography(key_file: Path, certificate_file: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, COMMON_NAME)])
    today = datetime.datetime.now(datetime.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=VALIDITY_DAYS))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    certificate_file.write_bytes(certificate.public_bytes(pem))


def write_with_openssl(key_file: Path, certificate_file: Path) -> None:
    command = [
        *("openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-subj", f"/CN={COMMON_NAME}", "-days", str(VALIDITY_DAYS)),
        *("-keyout", os.fspath(key_file), "-out", os.fspath(certificate_file)),
    ]
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=OPENSSL_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(
            "TLS needs a certificate: set tls.test.mode.enable=false, tls.server.certPath and "
            "tls.server.keyPath, or install cometmq[tls] (or the openssl program) to get a self-signed one."
        ) from error
