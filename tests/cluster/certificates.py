"""The papers of a throw-away cluster: one authority, and a certificate for everybody who speaks in it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Paper:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs what the cluster's components show each other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "throw-away cluster")])
        built = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, file: str, user: str, group: str | None = None, hosts: tuple[str, ...] = ()) -> Paper:
        """A certificate for a user of a group; `hosts` are the names and addresses it serves under."""
        names = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group is not None:
            names.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        key = ec.generate_private_key(ec.SECP256R1())
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        built = self._builder(x509.Name(names), key).add_extension(uses, critical=False)
        if hosts:
            served = [_served(host) for host in hosts]
            built = built.add_extension(x509.SubjectAlternativeName(served), critical=False)
        paper = Paper(self._folder / f"{file}.crt", self._folder / f"{file}.key")
        signed = built.sign(self._key, hashes.SHA256())
        paper.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        _write(paper.key, key)
        return paper

    def token_key(self) -> Path:
        """The key with which the API server signs service accounts' tokens."""
        file = self._folder / "tokens.key"
        _write(file, rsa.generate_private_key(65537, 2048))
        return file

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + _VALID)
        )


def _served(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(file: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    file.chmod(0o600)
