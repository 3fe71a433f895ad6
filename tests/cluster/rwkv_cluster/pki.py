"""Certificates of a cluster: one CA, server and client leaves, the service-account key pair.

Makes bytes and writes them where told; knows nothing of processes. Leaves carry an authority key
identifier and a key usage, and the CA may sign: without these Python 3.13's TLS refuses them.
"""

import datetime
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rwkv_cluster import errors

LIFETIME = datetime.timedelta(days=30)
# Clocks of containers and hosts may be a little apart.
BACKDATE = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    cert: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write `<name>.crt` and `<name>.key` (readable by the owner only); return the paths."""
        cert, key = folder / f"{name}.crt", folder / f"{name}.key"
        cert.write_bytes(self.cert)
        write_private(key, self.key)
        return cert, key


@dataclass(frozen=True)
class Authority:
    """A certificate authority that lives in memory."""

    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """The CA's certificate as PEM."""
        return self.cert.public_bytes(serialization.Encoding.PEM)

    def pair(self) -> KeyPair:
        """The CA's own certificate and key, for the controller that signs requests."""
        return KeyPair(self.pem, _key_pem(self.key))

    def issue_server(self, name: str, hosts: Iterable[str]) -> KeyPair:
        """Issue a serving certificate for DNS names and IP addresses."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._issue(name, (), (ExtendedKeyUsageOID.SERVER_AUTH,), names)

    def issue_client(self, user: str, groups: Iterable[str] = ()) -> KeyPair:
        """Issue a client certificate: common name = user, organisations = groups."""
        return self._issue(user, tuple(groups), (ExtendedKeyUsageOID.CLIENT_AUTH,), None)

    def _issue(
        self,
        user: str,
        groups: tuple[str, ...],
        usages: tuple[x509.ObjectIdentifier, ...],
        names: x509.SubjectAlternativeName | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            _builder(_subject(user, groups), self.cert.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(authority, critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        cert = builder.sign(self.key, hashes.SHA256())
        return KeyPair(cert.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def create_authority(name: str) -> Authority:
    """Make a new self-signed CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, ())
    cert = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(cert, key)


def load_authority(cert: Path, key: Path) -> Authority:
    """Read a CA back from its files."""
    loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise errors.UsageError(f"{key}: not an elliptic-curve key")
    return Authority(x509.load_pem_x509_certificate(cert.read_bytes()), loaded)


def write_service_account_keys(folder: Path) -> tuple[Path, Path]:
    """Write the key pair that signs service-account tokens; return (public, private) paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    public, private = folder / "service-account.pub", folder / "service-account.key"
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    write_private(private, _key_pem(key))
    return public, private


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(user: str, groups: tuple[str, ...]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
