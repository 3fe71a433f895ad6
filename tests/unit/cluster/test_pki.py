import ipaddress
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rwkv_cluster import pki


@pytest.fixture(scope="module")
def authority() -> pki.Authority:
    return pki.create_authority("test")


def load(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def usage(cert: x509.Certificate) -> x509.Extension[x509.KeyUsage]:
    return cert.extensions.get_extension_for_class(x509.KeyUsage)


def test_the_authority_may_sign_certificates_and_nothing_else(authority: pki.Authority) -> None:
    found = usage(authority.cert)
    assert found.critical
    assert found.value.key_cert_sign and found.value.crl_sign
    assert not found.value.digital_signature
    basic = authority.cert.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical and basic.value.ca


def test_leaves_name_their_issuers_key(authority: pki.Authority) -> None:
    subject = authority.cert.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    for pair in (authority.issue_server("s", ["localhost"]), authority.issue_client("c")):
        leaf = load(pair.cert)
        issuer = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
        assert issuer.value.key_identifier == subject.value.digest
        assert usage(leaf).value.digital_signature and not usage(leaf).value.key_cert_sign
        leaf.verify_directly_issued_by(authority.cert)


def test_a_server_has_its_names_and_addresses(authority: pki.Authority) -> None:
    leaf = load(authority.issue_server("api", ["localhost", "10.96.0.1"]).cert)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.96.0.1")]
    use = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(use) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_client_is_a_user_with_groups(authority: pki.Authority) -> None:
    leaf = load(authority.issue_client("system:node:n1", ("system:nodes", "more")).cert)
    names = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    groups = leaf.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [name.value for name in names] == ["system:node:n1"]
    assert [group.value for group in groups] == ["system:nodes", "more"]
    use = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(use) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_strict_tls_accepts_the_chain(authority: pki.Authority, tmp_path: Path) -> None:
    cert, key = authority.issue_server("api", ["localhost"]).write(tmp_path, "api")
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(cert, key)
    client_side = ssl.create_default_context(cadata=authority.pem.decode())
    # What Python 3.13 sets by default.
    client_side.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.getpeercert()


def test_keys_are_readable_by_their_owner_only(authority: pki.Authority, tmp_path: Path) -> None:
    _, key = authority.issue_client("c").write(tmp_path, "c")
    _, signing = pki.write_service_account_keys(tmp_path)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (key, signing)} == {0o600}


def test_an_authority_comes_back_from_its_files(authority: pki.Authority, tmp_path: Path) -> None:
    loaded = pki.load_authority(*authority.pair().write(tmp_path, "ca"))
    assert isinstance(loaded.key, ec.EllipticCurvePrivateKey)
    load(loaded.issue_client("c").cert).verify_directly_issued_by(authority.cert)
