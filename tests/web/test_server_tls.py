"""Certificates of the port, from wherever they come.

Covers ``ksched.web.serving_certificate`` too.
"""

from __future__ import annotations

import os
import ssl
import stat
import time

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from ksched.configuration.serving_flags import ServingOptions
from ksched.errors import ConfigError
from ksched.testing.virtual_time import EPOCH, VirtualClock
from ksched.web.server_tls import ServerTls
from ksched.web.serving_certificate import ServingCertificate, self_signed

DAY = 86_400.0


class Files:
    """A certificate, its key and a CA of clients, in files."""

    def __init__(self, folder):
        self.certificate, self.key, self.ca = folder / "c.pem", folder / "k.pem", folder / "ca.pem"
        self.issue()

    def issue(self):
        self.authority = trustme.CA()
        leaf = self.authority.issue_cert("127.0.0.1")
        self.certificate.write_bytes(leaf.cert_chain_pems[0].bytes())
        self.key.write_bytes(leaf.private_key_pem.bytes())
        self.ca.write_bytes(self.authority.cert_pem.bytes())

    def options(self, **more):
        return ServingOptions(
            tls_cert_file=str(self.certificate), tls_private_key_file=str(self.key), **more
        )


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def handshake(server, client):
    """Connect in memory; returns the certificate the server showed and what was agreed on."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    far = server.wrap_bio(to_server, to_client, server_side=True)
    left = {near, far}
    for _ in range(10):
        for side in list(left):
            try:
                side.do_handshake()
                left.discard(side)
            except ssl.SSLWantReadError:
                pass
    assert not left
    return near.getpeercert(binary_form=True), near.version(), near.cipher()[0], far


def trusting(authority=None):
    context = ssl.create_default_context()
    if authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        authority.configure_trust(context)
    return context


async def test_without_files_it_signs_for_itself_in_memory():
    tls = ServerTls(ServingOptions(bind_address="10.0.0.7"), VirtualClock())
    shown, version, *_ = handshake(tls.context(), trusting())
    names = x509.load_der_x509_certificate(shown).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["localhost"]
    assert {str(ip) for ip in names.value.get_values_for_type(x509.IPAddress)} == {
        *("10.0.0.7", "127.0.0.1")
    }
    assert version == "TLSv1.3"


async def test_self_signed_certificate_verifies_by_itself(tmp_path):
    certificate, key = self_signed("0.0.0.0", time.time())
    (tmp_path / "c").write_bytes(certificate)
    (tmp_path / "k").write_bytes(key)
    options = ServingOptions(
        tls_cert_file=str(tmp_path / "c"), tls_private_key_file=str(tmp_path / "k")
    )
    client = ssl.create_default_context(cadata=certificate.decode())
    handshake(ServerTls(options, VirtualClock()).context(), client)


async def test_certificate_in_memory_is_renewed_before_it_expires():
    clock = VirtualClock()
    certificate = ServingCertificate(ServingOptions(), clock)
    first = certificate.read()
    await clock.sleep(299 * DAY)
    assert certificate.read() == first
    await clock.sleep(2 * DAY)
    second = certificate.read()
    assert second != first
    until = x509.load_pem_x509_certificate(second).not_valid_after_utc.timestamp()
    assert until > EPOCH + (301 + 364) * DAY


async def test_missing_pair_is_written_to_the_folder_and_used_again(tmp_path):
    options = ServingOptions(cert_dir=str(tmp_path / "certs"))
    first = ServingCertificate(options, VirtualClock()).read()
    key = tmp_path / "certs" / "kube-scheduler.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert (tmp_path / "certs" / "kube-scheduler.crt").exists()
    assert ServingCertificate(options, VirtualClock()).read() == first
    ServerTls(options, VirtualClock())


async def test_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--cert-dir: cannot write .*/file: File exists"):
        ServerTls(ServingOptions(cert_dir=str(tmp_path / "file")), VirtualClock())


async def test_rotated_files_are_used_for_new_connections(files, caplog):
    caplog.set_level("INFO")
    tls = ServerTls(files.options(), VirtualClock())
    old = files.authority
    handshake(tls.context(), trusting(old))
    first = tls.context()
    tls.reload()
    assert tls.context() is first, "nothing changed"
    files.issue()
    tls.reload()
    handshake(tls.context(), trusting(files.authority))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls.context(), trusting(old))
    assert [record.message for record in caplog.records] == ["TLS certificates reloaded"]


async def test_files_that_cannot_be_used_leave_the_last_ones(files, caplog):
    tls = ServerTls(files.options(client_ca_file=str(files.ca)), VirtualClock())
    context, authority = tls.context(), files.authority
    key, ca = files.key.read_bytes(), files.ca.read_bytes()
    for path, content in ((files.key, b"half"), (files.key, None), (files.ca, b"nonsense")):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        for _ in range(3):
            tls.reload()
        assert tls.context() is context
        files.key.write_bytes(key)
        files.ca.write_bytes(ca)
    handshake(tls.context(), trusting(authority))
    assert len(caplog.records) == 3, "each is told once"
    assert "--client-ca-file" in caplog.records[-1].err


async def test_key_of_another_certificate_is_refused(files):
    files.key.write_bytes(trustme.CA().issue_cert("x").private_key_pem.bytes())
    with pytest.raises(ConfigError, match=r"--tls-cert-file: cannot use .*c.pem and .*k.pem: "):
        ServerTls(files.options(), VirtualClock())


async def test_encrypted_key_is_refused_without_a_question(files):
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="--tls-cert-file: cannot use"):
        ServerTls(files.options(), VirtualClock())


async def test_missing_ca_file_is_named(files):
    files.ca.unlink()
    with pytest.raises(ConfigError, match=r"--client-ca-file: cannot use .*ca.pem: .*No such file"):
        ServerTls(files.options(client_ca_file=str(files.ca)), VirtualClock())


async def test_minimum_version_and_cipher_suites_are_honoured(files):
    only_12 = trusting(files.authority)
    only_12.maximum_version = ssl.TLSVersion.TLSv1_2
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    chosen = ServerTls(files.options(tls_cipher_suites=suite), VirtualClock())
    _, version, cipher, _ = handshake(chosen.context(), only_12)
    assert version == "TLSv1.2"
    assert cipher.endswith("AES256-GCM-SHA384")
    only_12.set_ciphers("ECDHE+AES128")
    with pytest.raises(ssl.SSLError):
        handshake(chosen.context(), only_12)
    newest = ServerTls(files.options(tls_min_version="VersionTLS13"), VirtualClock())
    with pytest.raises(ssl.SSLError):
        handshake(newest.context(), only_12)
    assert handshake(newest.context(), trusting(files.authority))[1] == "TLSv1.3"


async def test_client_certificates_are_verified_by_the_cluster_ca(files, caplog):
    tls = ServerTls(files.options(), VirtualClock())
    assert tls.authorities.users == b""
    cluster, other = trustme.CA(), trustme.CA()
    tls.set_cluster_users(cluster.cert_pem.bytes())
    assert tls.authorities.users == cluster.cert_pem.bytes()

    def client(authority):
        context = trusting(files.authority)
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # the refusal is part of the handshake
        authority.issue_cert("x@y", common_name="ada").configure_cert(context)
        return context

    *_, far = handshake(tls.context(), client(cluster))
    assert (("commonName", "ada"),) in far.getpeercert()["subject"]
    with pytest.raises(ssl.SSLError):
        handshake(tls.context(), client(other))
    *_, far = handshake(tls.context(), trusting(files.authority))
    assert not far.getpeercert()

    tls.set_cluster_users(b"nonsense")
    assert tls.authorities.users == cluster.cert_pem.bytes()
    assert "extension-apiserver-authentication" in caplog.records[-1].err
    tls.set_cluster_users(b"")
    assert tls.authorities.users == b""
    assert tls.context().verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize("one", ["certificate", "key", "ca"])
def test_a_file_that_became_a_pipe_is_not_waited_for(files, caplog, one):
    tls = ServerTls(files.options(client_ca_file=str(files.ca)), VirtualClock())
    before = tls.context()
    path = getattr(files, one)
    path.unlink()
    os.mkfifo(path)
    tls.reload()
    assert tls.context() is before
    [record] = caplog.records
    assert "not a regular file" in record.err
