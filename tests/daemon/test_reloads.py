"""The configuration file of a process: noticed, loaded, refused, and told."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ksched.configuration.flags import ConfigFile
from ksched.configuration.loading import load_config
from ksched.configuration.model import ClientConnection
from ksched.daemon.reloads import POLL_SECONDS, SIGNAL, ConfigReloads
from ksched.metrics import Metrics
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.harness import beside

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
QPS = "clientConnection: {qps: -1}\n"
PLAIN = HEAD + QPS
TOLERANT = PLAIN + (
    "profiles:\n"
    "- schedulerName: default-scheduler\n"
    "  plugins: {multiPoint: {disabled: [{name: TaintToleration}]}}\n"
)
WRONG = PLAIN + "podInitialBackoffSeconds: -1\nprofiles: []\nnonsense: 1\n"


class Site:
    def __init__(self, c: Any, path: Path, reloads: ConfigReloads, metrics: Metrics) -> None:
        self.c, self.path, self.reloads, self.metrics = c, path, reloads, metrics

    def gauge(self, name: str) -> float:
        [value] = [
            sample.value
            for family in self.metrics.collect()
            for sample in family.samples
            if sample.name == name
        ]
        return value

    def counted(self, result: str) -> float:
        return self.metrics.config_reloads.value(result)


@asynccontextmanager
async def site(tmp_path: Path):
    path = tmp_path / "config.yaml"
    path.write_text(PLAIN)

    def load(text: str, notes: list[str]):
        return load_config(text, notes.append)

    file = ConfigFile(str(path), PLAIN, load)
    configuration = load(PLAIN, [])
    assert configuration.client_connection == ClientConnection(qps=-1.0)
    tainted = make_node("n1").taint("gpu", "", "NoSchedule")
    async with cluster([tainted], config=configuration) as c:
        await c.create(make_pod("web"))
        await c.settle()
        metrics = Metrics()
        reloads = ConfigReloads(file, configuration, lambda: c.scheduler, c.clock, metrics)
        async with beside(reloads.run):
            yield Site(c, path, reloads, metrics)


async def test_a_changed_file_is_noticed(tmp_path, caplog):
    async with site(tmp_path) as s:
        before = s.reloads.view()
        assert before["lastReload"] is None
        await s.c.advance(3 * POLL_SECONDS)
        assert s.metrics.config_reloads.values() == {}
        s.path.write_text(TOLERANT)
        with caplog.at_level(logging.INFO, "ksched.daemon.reloads"):
            await s.c.advance(POLL_SECONDS)
            assert s.counted("applied") == 0, "it may be in the middle of being written"
            await s.c.advance(2 * POLL_SECONDS)
        assert s.c.bound("web") == "n1"
        assert s.counted("applied") == 1
        [told] = [one for one in caplog.records if one.message == "configuration reloaded"]
        assert (told.trigger, told.pending_pods, told.compared, told.fit_now) == (
            *("file changed", 1, 1),
            1,
        )
        after = s.reloads.view()
        assert after["configurationHash"] != before["configurationHash"]
        assert after["lastReload"]["result"] == "applied"
        assert after["lastReload"]["comparison"]["fitNow"] == 1
        assert s.gauge("ksched_config_last_reload_success_timestamp_seconds") == (
            pytest.approx(s.c.clock.wall(), abs=3 * POLL_SECONDS)
        )
        assert s.reloads.configuration is not None
        assert s.reloads.configuration.profiles == s.c.scheduler.configuration.profiles


async def test_a_mounted_config_map_changes_by_its_link(tmp_path):
    async with site(tmp_path) as s:
        versions = [tmp_path / name for name in ("..1", "..2")]
        for folder, text in zip(versions, (PLAIN, TOLERANT), strict=True):
            folder.mkdir()
            (folder / "config.yaml").write_text(text)
        data = tmp_path / "..data"
        data.symlink_to(versions[0])
        s.path.unlink()
        s.path.symlink_to(data / "config.yaml")
        await s.c.advance(3 * POLL_SECONDS)
        assert s.metrics.config_reloads.values() == {}
        other = tmp_path / "..tmp"
        other.symlink_to(versions[1])
        other.replace(data)
        await s.c.advance(3 * POLL_SECONDS)
        assert s.counted("applied") == 1
        assert s.c.bound("web") == "n1"


async def test_a_bad_file_is_told_once_and_changes_nothing(tmp_path, caplog):
    async with site(tmp_path) as s:
        config = s.c.scheduler.configuration
        s.path.write_text(WRONG)
        with caplog.at_level(logging.ERROR, "ksched.daemon.reloads"):
            await s.c.advance(20 * POLL_SECONDS)
        assert s.c.scheduler.configuration is config
        assert s.counted("refused") == 1
        assert s.gauge("ksched_config_last_reload_successful") == 0
        problems = s.reloads.view()["lastReload"]["problems"]
        assert len(problems) >= 2
        assert [one.err for one in caplog.records] == problems
        s.path.write_text(PLAIN)
        await s.c.advance(3 * POLL_SECONDS)
        assert s.counted("unchanged") == 1
        assert s.gauge("ksched_config_last_reload_successful") == 1


async def test_a_file_that_is_gone_changes_nothing(tmp_path):
    async with site(tmp_path) as s:
        s.path.unlink()
        await s.c.advance(10 * POLL_SECONDS)
        assert s.counted("refused") == 1
        assert "cannot read" in s.reloads.view()["lastReload"]["problems"][0]
        s.path.write_text(TOLERANT)
        await s.c.advance(3 * POLL_SECONDS)
        assert s.counted("applied") == 1


async def test_a_file_that_became_a_pipe_is_not_waited_for(tmp_path):
    async with site(tmp_path) as s:
        s.path.unlink()
        os.mkfifo(s.path)
        await s.c.advance(10 * POLL_SECONDS)
        assert s.counted("refused") == 1
        [problem] = s.reloads.view()["lastReload"]["problems"]
        assert problem.endswith("not a regular file")
        s.path.unlink()
        s.path.write_text(TOLERANT)
        await s.c.advance(3 * POLL_SECONDS)
        assert s.counted("applied") == 1


async def test_a_signal_does_not_wait_for_a_second_look(tmp_path):
    async with site(tmp_path) as s:
        s.path.write_text(TOLERANT)
        s.reloads.want(SIGNAL)
        await s.c.settle()
        await s.c.advance(0.1)
        assert s.c.bound("web") == "n1"
        assert s.reloads.view()["lastReload"]["trigger"] == "SIGHUP"
        await s.c.advance(5 * POLL_SECONDS)
        assert sum(s.metrics.config_reloads.values().values()) == 1


async def test_requests_at_once_are_answered_by_one_load(tmp_path):
    async with site(tmp_path) as s:
        s.path.write_text(WRONG)
        answers = await asyncio.gather(*(s.reloads.requested() for _ in range(5)))
        assert all(one == answers[0] for one in answers)
        assert answers[0]["result"] == "refused"
        assert s.counted("refused") == 1
        s.path.write_text(TOLERANT)
        assert (await s.reloads.requested())["result"] == "applied"
        assert (await s.reloads.requested())["result"] == "unchanged"


async def test_a_scheduler_that_took_over_meanwhile_gets_it_too(tmp_path):
    async with site(tmp_path) as s, cluster([make_node("n1")]) as other:
        first = s.c.scheduler
        calls: list[int] = []
        s.reloads._scheduler = lambda: first if not calls else other.scheduler
        applied = first.reload

        async def reload(configuration):
            done = await applied(configuration)
            calls.append(1)
            return done

        first.reload = reload
        s.path.write_text(TOLERANT)
        assert (await s.reloads.requested())["result"] == "applied"
        assert other.scheduler.configuration.profiles == first.configuration.profiles


async def test_an_unexpected_error_is_a_refusal(tmp_path, caplog):
    async with site(tmp_path) as s:

        async def fails(configuration):
            raise ZeroDivisionError("oh")

        s.c.scheduler.reload = fails
        s.path.write_text(TOLERANT)
        answer = await s.reloads.requested()
        assert answer["problems"] == ["ZeroDivisionError: oh"]
        assert s.counted("refused") == 1
