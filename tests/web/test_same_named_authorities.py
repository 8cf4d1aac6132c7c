"""CAs of one name and with different keys: certificates of all of them are accepted.

They have no key identifiers, by which OpenSSL would tell them apart.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from ksched.configuration.serving_flags import ServingOptions
from ksched.testing.virtual_time import VirtualClock
from ksched.web.same_named_authorities import others_of_the_name, same_named, signer
from ksched.web.server_tls import ServerTls
from tests.web.test_front_proxy import ADA, MASTER, port

NAME = "kubernetes"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
PEM = serialization.Encoding.PEM
versions = pytest.mark.parametrize("version", VERSIONS)


class Signer:
    """A CA, or a CA below another one, without key identifiers."""

    def __init__(self, name=NAME, parent=None, key=None):
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.parent = parent
        self.certificate = self._sign(self.name, self.key, parent or self, is_ca=True)
        self.pem = self.certificate.public_bytes(PEM)
        self.cert_pem = trustme.Blob(self.pem)
        self.der = self.certificate.public_bytes(serialization.Encoding.DER)

    def _sign(self, name, key, issuer, *, is_ca):
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        return builder.sign(issuer.key, hashes.SHA256())

    def client(self, folder, version, name="ada"):
        """A context with a certificate of this CA, and those between it and the root."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        leaf = self._sign(subject, key, self, is_ca=False)
        content = key.private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        content += leaf.public_bytes(PEM)
        between = self
        while between.parent is not None:
            content += between.pem
            between = between.parent
        file = folder / "client.pem"
        file.write_bytes(content)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = version
        context.load_cert_chain(file)
        return context


def served(users, proxies):
    tls = ServerTls(ServingOptions(), VirtualClock())
    tls.set_cluster_users(b"".join(one.pem for one in users))
    tls.set_cluster_proxies(b"".join(one.pem for one in proxies))
    return tls.context()


def handshake(server, client, session=None):
    """Connect in memory, and exchange a word; returns both sides."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname="x", session=session)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    left = [near, far]
    for _ in range(10):
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not left
    far.write(b"hello")
    assert near.read() == b"hello"
    return near, far


def found_by(far):
    """Whether a connection has a certificate of the CAs of users, and of proxies."""
    return [bool(one) for one in far.context.verified_by(far)]


@versions
@pytest.mark.parametrize("is_swapped", [False, True])
async def test_users_and_proxies_are_both_accepted(tmp_path, version, is_swapped):
    users, proxies = Signer(), Signer()
    if is_swapped:
        users, proxies = proxies, users
    context = served([users], [proxies])
    for authority, expected in ((users, [True, False]), (proxies, [False, True])):
        _, far = handshake(context, authority.client(tmp_path, version))
        assert found_by(far) == expected
        assert far.getpeercert()["subject"] == ((("commonName", "ada"),),)


@versions
async def test_several_of_one_kind_are_all_accepted(tmp_path, version):
    old, new, newest, other = Signer(), Signer(), Signer(), Signer("front-proxy")
    context = served([old, new, newest], [other])
    for authority in (old, new, newest):
        assert found_by(handshake(context, authority.client(tmp_path, version))[1]) == [True, False]
    assert found_by(handshake(context, other.client(tmp_path, version))[1]) == [False, True]


@versions
async def test_a_ca_of_both_kinds_is_both_beside_another_of_its_name(tmp_path, version):
    both, users = Signer(), Signer()
    context = served([both, users], [both])
    assert found_by(handshake(context, both.client(tmp_path, version))[1]) == [True, True]
    assert found_by(handshake(context, users.client(tmp_path, version))[1]) == [True, False]


@versions
async def test_certificates_between_are_followed(tmp_path, version):
    users, proxies = Signer(), Signer()
    context = served([users], [proxies])
    for root, expected in ((users, [True, False]), (proxies, [False, True])):
        between = Signer("lower", Signer("between", root))
        _, far = handshake(context, between.client(tmp_path, version))
        assert found_by(far) == expected


@versions
async def test_a_third_ca_of_that_name_is_refused(tmp_path, version):
    context = served([Signer()], [Signer()])
    with pytest.raises(ssl.SSLError):
        handshake(context, Signer().client(tmp_path, version))


@versions
async def test_without_a_certificate_nobody_is_known(version):
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.maximum_version = version
    _, far = handshake(served([Signer()], [Signer()]), client)
    assert found_by(far) == [False, False]


@versions
async def test_a_resumed_session_is_of_the_ca_that_it_began_with(tmp_path, version):
    users, proxies = Signer(), Signer()
    context = served([users], [proxies])
    client = proxies.client(tmp_path, version)
    near, far = handshake(context, client)
    assert found_by(far) == [False, True]
    near_again, far_again = handshake(context, client, near.session)
    assert near_again.session_reused
    assert found_by(far_again) == [False, True]


def test_the_key_exchange_without_forward_secrecy_needs_the_key_after_the_choice(tmp_path):
    key = rsa.generate_private_key(65537, 2048)
    certificate = Signer("server", key=key)
    pair = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files = tmp_path / "c.pem", tmp_path / "k.pem"
    files[0].write_bytes(certificate.pem)
    files[1].write_bytes(pair)
    tls = ServerTls(
        ServingOptions(
            tls_cert_file=str(files[0]),
            tls_private_key_file=str(files[1]),
            tls_cipher_suites=("TLS_RSA_WITH_AES_128_GCM_SHA256",),
        ),
        VirtualClock(),
    )
    users, proxies = Signer(), Signer()
    tls.set_cluster_users(users.pem)
    tls.set_cluster_proxies(proxies.pem)
    for authority, expected in ((users, [True, False]), (proxies, [False, True])):
        client = authority.client(tmp_path, ssl.TLSVersion.TLSv1_2)
        client.set_ciphers("AES128-GCM-SHA256")
        assert found_by(handshake(tls.context(), client)[1]) == expected


async def test_other_cas_are_not_looked_at():
    for users, proxies in (
        ([Signer("a")], [Signer("b")]),
        ([Signer()], []),
        ([one := Signer()], [one]),
        ([], []),
    ):
        assert served(users, proxies)._msg_callback is None
    both = trustme.CA(), trustme.CA()
    tls = ServerTls(ServingOptions(), VirtualClock())
    tls.set_cluster_users(both[0].cert_pem.bytes())
    tls.set_cluster_proxies(both[1].cert_pem.bytes())
    assert tls.context()._msg_callback is None


def test_one_key_in_two_certificates_is_one_ca():
    key = ec.generate_private_key(ec.SECP256R1())
    renewed, before, other = Signer(key=key), Signer(key=key), Signer()
    assert same_named([renewed.der, before.der]) == []
    every = [renewed.der, before.der, other.der, Signer("else").der]
    assert same_named(every) == every[:3]
    assert others_of_the_name(renewed.der, every) == {other.der}
    assert others_of_the_name(other.der, every) == {renewed.der, before.der}


@pytest.mark.real_time
@versions
async def test_users_and_proxies_of_one_name_over_a_socket(tmp_path, version):
    users, proxies = Signer(), Signer()
    async with port(tmp_path, users, proxies) as site:
        assert await site.get(users.client(tmp_path, version, "bob"), MASTER) == 200
        assert await site.get(proxies.client(tmp_path, version), ADA) == 200
        assert [spec["user"] for spec in site.reviewed] == ["bob", "ada"]
        assert await site.get(proxies.client(tmp_path, version)) == 401
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await site.get(Signer().client(tmp_path, version), MASTER)


async def test_upper_and_lower_case_are_one_name_to_openssl(tmp_path):
    users, proxies = Signer("Kubernetes"), Signer("kubernetes")
    context = served([users], [proxies])
    for authority, expected in ((users, [True, False]), (proxies, [False, True])):
        _, far = handshake(context, authority.client(tmp_path, VERSIONS[1]))
        assert found_by(far) == expected


def test_a_ca_that_cannot_be_read_is_left_to_openssl():
    other = Signer()
    assert same_named([b"nonsense", AUTHORITY.der, b"other nonsense"]) == []
    assert same_named([b"nonsense", AUTHORITY.der, other.der]) == [AUTHORITY.der, other.der]


@given(st.binary(max_size=200), st.sampled_from([0x0303, 0x0304]))
def test_a_message_of_anything_is_of_nobody(message, version):
    assert signer(message, version, [AUTHORITY.der]) is None


AUTHORITY = Signer()
