"""Tokens that change while we run and programs that give them, over real sockets."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import ssl
import sys
from datetime import UTC, datetime

import pytest
import trustme

from ksched.client.authentication import FixedSecret, Secret, TokenFile, bearer
from ksched.client.exec_credentials import ExecCredentials, ExecSpec
from ksched.client.exec_metrics import ExecMetrics
from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.clock import LoopClock, rfc3339
from ksched.errors import Unavailable
from ksched.metrics import Metrics
from ksched.transport import NOT_SENT

pytestmark = pytest.mark.real_time
V1 = "client.authentication.k8s.io/v1"


@pytest.fixture
async def connect():
    made = []

    def make(config, **options):
        made.append(HttpTransport(config, LoopClock(), **options))
        return made[-1]

    yield make
    for transport in made:
        await transport.aclose()


@pytest.fixture
def guarded(raw_server, wire):
    """A server that accepts one token at a time: ``server.token``."""

    async def start(token):
        async def handle(asked, writer):
            ok = asked.header("authorization") == f"Bearer {server.token}"
            writer.write(wire.answer(b"{}" if ok else b"Unauthorized", 200 if ok else 401))

        server = await raw_server(handle)
        server.token = token
        return server

    return start


# -- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_rotated_token_file_is_read_again_after_401(tmp_path, connect, guarded, method):
    path = tmp_path / "token"
    path.write_text("first\n")
    server = await guarded("first")
    config = ClientConfig(
        f"http://127.0.0.1:{server.port}", credentials=TokenFile(path, LoopClock())
    )
    transport = connect(config)
    assert (await transport.request(method, "/x", b"")).status == 200
    server.token = "second"
    path.write_text("second\n")
    assert (await transport.request(method, "/x", b"")).status == 200
    assert [asked.header("authorization") for asked in server.asked] == [
        "Bearer first",
        "Bearer first",
        "Bearer second",
    ]


async def test_watch_renews_a_rejected_token_too(tmp_path, connect, guarded):
    path = tmp_path / "token"
    path.write_text("old")
    server = await guarded("new")
    config = ClientConfig(
        f"http://127.0.0.1:{server.port}", credentials=TokenFile(path, LoopClock())
    )
    transport = connect(config)
    await transport.request("POST", "/x", b"")
    path.write_text("new")
    async with transport.stream("/watch") as stream:
        assert stream.status == 200


async def test_401_with_nothing_new_to_offer_is_the_answer(connect, guarded):
    server = await guarded("right")
    config = ClientConfig(
        f"http://127.0.0.1:{server.port}", credentials=FixedSecret(bearer("wrong"))
    )
    transport = connect(config)
    assert (await transport.request("POST", "/x", b"")).status == 401
    assert (await transport.request("GET", "/x")).status == 401
    async with transport.stream("/watch") as stream:
        assert stream.status == 401
    assert len(server.asked) == 3


async def test_token_file_is_read_again_every_period(tmp_path):
    path = tmp_path / "token"
    path.write_text("one")
    source = TokenFile(path, LoopClock(), period=0.05)
    assert (await source.get()).authorization == "Bearer one"
    path.write_text("two")
    assert (await source.get()).authorization == "Bearer one"
    await asyncio.sleep(0.06)
    assert (await source.get()).authorization == "Bearer two"


async def test_token_file_that_vanishes_keeps_the_last_token(tmp_path, caplog):
    path = tmp_path / "token"
    path.write_text("sesame")
    source = TokenFile(path, LoopClock(), period=0.0)
    await source.get()
    path.unlink()
    assert (await source.get()).authorization == "Bearer sesame"
    path.write_text("")
    assert (await source.get()).authorization == "Bearer sesame"
    assert "token file cannot be read" in caplog.messages
    assert "sesame" not in caplog.text


async def test_missing_token_file_names_the_file(tmp_path, connect, guarded):
    server = await guarded("x")
    missing = tmp_path / "missing"
    config = ClientConfig(
        f"http://127.0.0.1:{server.port}", credentials=TokenFile(missing, LoopClock())
    )
    with pytest.raises(Unavailable, match=str(missing)) as caught:
        await connect(config).request("POST", "/x", b"")
    assert caught.value.reason == NOT_SENT
    assert server.asked == []


def test_secrets_do_not_show_themselves():
    secret = Secret(authorization="Bearer sesame", certificate="cert", key="key")
    assert "sesame" not in repr(secret)
    assert "key'" not in repr(secret)


@pytest.mark.parametrize("token", ["a\r\nEvil: b", "ü", "a\x00"])
def test_token_that_would_smuggle_a_header_is_refused(token):
    with pytest.raises(Unavailable, match="no header may hold"):
        bearer(token)


# -- exec ---------------------------------------------------------------------------------------


def program(tmp_path, body):
    """A credential program: Python with ``runs`` (how often it was started) at hand."""
    path = tmp_path / "program.py"
    path.write_text(
        "import json, os, sys, time, pathlib\n"
        f"counter = pathlib.Path({str(tmp_path / 'runs')!r})\n"
        "runs = int(counter.read_text()) + 1 if counter.exists() else 1\n"
        "counter.write_text(str(runs))\n"
        "def give(**status):\n"
        f"    print(json.dumps({{'apiVersion': {V1!r}, 'kind': 'ExecCredential',"
        " 'status': status}))\n" + body
    )
    return ExecSpec(V1, sys.executable, args=("-S", str(path)), env={"EXTRA": "yes"})


def runs(tmp_path):
    return int((tmp_path / "runs").read_text())


async def test_exec_program_runs_once_for_all_and_again_after_401(tmp_path, connect, guarded):
    server = await guarded("token-1")
    source = ExecCredentials(program(tmp_path, "give(token=f'token-{runs}')"), LoopClock())
    transport = connect(ClientConfig(f"http://127.0.0.1:{server.port}", credentials=source))
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(transport.request("POST", "/x", b""))
    assert runs(tmp_path) == 1
    server.token = "token-2"
    source._ran_at -= 60  # not within seconds of the last run
    assert (await transport.request("POST", "/x", b"")).status == 200
    assert runs(tmp_path) == 2


async def test_server_that_rejects_everything_does_not_start_the_program_each_time(
    tmp_path, connect, guarded
):
    server = await guarded("never")
    source = ExecCredentials(program(tmp_path, "give(token='t')"), LoopClock())
    transport = connect(ClientConfig(f"http://127.0.0.1:{server.port}", credentials=source))
    for _ in range(5):
        assert (await transport.request("POST", "/x", b"")).status == 401
    assert runs(tmp_path) == 1


async def test_exec_program_runs_again_when_the_credential_expires(tmp_path):
    class Clock(LoopClock):
        ahead = 0.0

        def wall(self):
            return 1_800_000_000.0 + self.ahead

    clock = Clock()
    expiry = rfc3339(clock.wall() + 600)
    source = ExecCredentials(
        program(tmp_path, f"give(token=str(runs), expirationTimestamp={expiry!r})"), clock
    )
    assert (await source.get()).authorization == "Bearer 1"
    clock.ahead = 500
    assert (await source.get()).authorization == "Bearer 1"
    clock.ahead = 545  # a minute before, rather than a second after
    assert (await source.get()).authorization == "Bearer 2"


async def test_exec_program_is_told_what_it_asked_for(tmp_path):
    out = tmp_path / "env"
    body = (
        f"pathlib.Path({str(out)!r}).write_text("
        "os.environ['KUBERNETES_EXEC_INFO'] + chr(10) + os.environ['EXTRA'])\n"
        "give(token='t')"
    )
    spec = program(tmp_path, body)
    cluster = {"server": "https://a", "config": {"b": 1}}
    await ExecCredentials(
        ExecSpec(spec.api_version, spec.command, spec.args, spec.env, cluster), LoopClock()
    ).get()
    info, extra = out.read_text().split("\n")
    assert json.loads(info) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": cluster},
    }
    assert extra == "yes"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param("sys.exit('no ticket')", "exit code 1: no ticket", id="fails"),
        pytest.param("print('hello')", "no ExecCredential", id="says something else"),
        pytest.param("give()", "neither token nor client certificate", id="gives nothing"),
        pytest.param("give(clientCertificateData='c')", "only together", id="certificate, no key"),
        pytest.param("print('{}')", "no ExecCredential", id="empty object"),
        pytest.param(
            "print(json.dumps({'apiVersion': 'v9', 'kind': 'ExecCredential'}))",
            "got ExecCredential of v9",
            id="another version",
        ),
        pytest.param("time.sleep(30)", "did not finish within 3 s", id="hangs"),
    ],
)
async def test_exec_program_that_fails_says_so_and_is_asked_again(tmp_path, body, message):
    spec = program(tmp_path, body)
    source = ExecCredentials(spec, LoopClock(), timeout=3.0)
    with pytest.raises(Unavailable, match=message) as caught:
        await source.get()
    assert spec.command in caught.value.message
    assert caught.value.reason == NOT_SENT
    program(tmp_path, "give(token='better')")
    assert (await source.get()).authorization == "Bearer better"


async def test_chatty_exec_program_does_not_hang(tmp_path):
    spec = program(tmp_path, "sys.stderr.write('x' * 1000000)\ngive(token='t')")
    assert (await ExecCredentials(spec, LoopClock(), timeout=5).get()).authorization == "Bearer t"


async def test_missing_exec_program_gives_its_install_hint(tmp_path):
    spec = ExecSpec(V1, str(tmp_path / "nope"), install_hint="get it from the shop")
    with pytest.raises(Unavailable, match="get it from the shop"):
        await ExecCredentials(spec, LoopClock()).get()


async def test_secret_in_bad_output_is_not_repeated(tmp_path, caplog):
    spec = program(tmp_path, 'print(\'{"token": "sesame"\')')
    with caplog.at_level(logging.DEBUG), pytest.raises(Unavailable) as caught:
        await ExecCredentials(spec, LoopClock()).get()
    assert "sesame" not in str(caught.value) + caplog.text


def seconds_left(metrics):
    [family] = [one for one in metrics.collect() if one.name.endswith("exec_plugin_ttl_seconds")]
    return family.samples[0].value


async def test_runs_of_an_exec_program_are_counted_by_their_outcome(tmp_path):
    metrics = Metrics()
    counted = ExecMetrics(metrics, LoopClock())
    good, bad = program(tmp_path, "give(token='t')"), ExecSpec(V1, str(tmp_path / "nope"))
    source = ExecCredentials(good, LoopClock(), timeout=3)
    absent = ExecCredentials(bad, LoopClock())
    absent.metrics = source.metrics = counted
    await source.get()
    for body in ("sys.exit(7)", "os.kill(os.getpid(), 9)"):
        program(tmp_path, body)
        source._secret = None
        with pytest.raises(Unavailable):
            await source.get()
    with pytest.raises(Unavailable):
        await absent.get()

    assert metrics.rest_client_exec_plugin_calls.values() == {
        ("0", "no_error"): 1,
        ("7", "plugin_execution_error"): 1,
        ("-1", "plugin_execution_error"): 1,
        ("1", "plugin_not_found_error"): 1,
    }
    assert seconds_left(metrics) == math.inf


def test_certificates_of_exec_programs_are_followed_to_their_end():
    metrics, clock = Metrics(), LoopClock()
    counted = ExecMetrics(metrics, clock)
    leaf = trustme.CA().issue_cert("x@y", not_after=datetime(2099, 1, 1, tzinfo=UTC))
    first, second = (
        authority.issue_cert("x@y").cert_chain_pems[0].bytes().decode()
        for authority in (trustme.CA(), trustme.CA())
    )
    counted.renewed("a", leaf.cert_chain_pems[0].bytes().decode())
    until = datetime(2099, 1, 1, tzinfo=UTC).timestamp()
    assert seconds_left(metrics) == pytest.approx(until - clock.wall(), abs=60)
    counted.renewed("b", first)
    counted.renewed("b", first)
    ages = metrics.rest_client_exec_plugin_certificate_rotation_age.of()
    assert ages.count == 0
    counted.renewed("b", second)
    assert ages.count == 1
    assert ages.sum > 0
    der = ssl.PEM_cert_to_DER_cert(first)
    strange = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x05")
    counted.renewed("a", ssl.DER_cert_to_PEM_cert(strange))
    counted.renewed("b", "no certificate")
    counted.renewed("a", "")
    assert ages.count == 3
    assert seconds_left(metrics) == math.inf
