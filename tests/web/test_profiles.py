"""Profiles of a scheduler that is asked for them, and that ``go tool pprof`` reads them.

Covers ``ksched.web.cpu_profile``, ``ksched.web.heap_profile``, ``ksched.web.profile_encoding`` and
``ksched.web.stacks`` too, and ``ksched.thread_turns``.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from ksched.configuration.model import SchedulerConfiguration
from ksched.metrics import Metrics
from ksched.testing.harness import cluster
from ksched.thread_turns import SHORT_TURNS, SWITCH_SECONDS
from ksched.web import cpu_profile as cpu_profiles
from ksched.web.cpu_profile import FURTHER_STACKS, MAX_DEPTH, Sampler, cpu_clock, cpu_profile
from ksched.web.heap_profile import heap_profile
from ksched.web.profile_encoding import Frame, Profile, Sample, ValueType, profile_pieces
from ksched.web.profiles import command_line
from ksched.web.stacks import activities, goroutine_profile, grouped, one_by_one
from ksched.web.web_server import WebServer
from lab.protobuf_reader import read_profile

LOOPBACK = "127.0.0.1"
WALL = 1_700_000_000.0
COUNT = ValueType("things", "count")
real_time = pytest.mark.real_time
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU clocks of Linux")


def decoded(profile):
    return read_profile(b"".join(profile_pieces(profile)))


def functions(sample):
    return [name.rpartition(".")[2] for name, *_ in sample.stack]


def compute(until):
    """Keep a core busy; what the profiles below must find."""
    while not until.is_set():
        sum(range(1000))


@contextmanager
def computing_thread(work=compute, name="at work"):
    done = threading.Event()
    thread = threading.Thread(target=work, args=(done,), name=name)
    thread.start()
    try:
        yield thread
    finally:
        done.set()
        thread.join()


# -- the format -----------------------------------------------------------------------------------


def test_samples_are_read_back_as_they_were():
    outer, inner = Frame("m.outer", "/m.py", 1, 5), Frame("m.inner", "/m.py", 10, 12)
    elsewhere = inner._replace(line=2**31)
    samples = [
        Sample([inner, outer], (3, 0), {"thread": "a"}),
        None,
        Sample([elsewhere, outer], (1, 2**40)),
    ]
    profile = Profile((COUNT, ValueType("cpu", "nanoseconds")), samples, 7, 8, 9)
    found = decoded(profile)

    assert found.types == [("things", "count"), ("cpu", "nanoseconds")]
    assert found.period_type == ("cpu", "nanoseconds")
    assert (found.time_nanos, found.duration_nanos, found.period) == (7, 8, 9)
    assert found.samples == [
        ([inner_of(inner), inner_of(outer)], [3, 0], {"thread": "a"}),
        ([inner_of(elsewhere), inner_of(outer)], [1, 2**40], {}),
    ]


def inner_of(frame):
    return frame.function, frame.file, frame.first_line, frame.line


def test_a_profile_comes_in_small_pieces():
    samples = [Sample([Frame(f"f{n}", f"/{n}.py", n, n)], (1,)) for n in range(1000)]
    pieces = list(profile_pieces(Profile((COUNT,), samples, 0)))

    assert len(pieces) > 1000
    assert len(read_profile(b"".join(pieces)).samples) == 1000


# -- CPU time -------------------------------------------------------------------------------------


@linux
@real_time
async def test_cpu_time_is_found_where_it_is_spent():
    waiting = threading.Event()
    idle = threading.Thread(target=waiting.wait, name="idle")
    idle.start()
    with computing_thread() as busy:
        clock = cpu_clock(busy.native_id)
        before = time.clock_gettime_ns(clock)
        found = decoded((await cpu_profile(0.5, lambda: WALL)).profile())
        spent = time.clock_gettime_ns(clock) - before
    waiting.set()
    idle.join()

    assert found.types == [("samples", "count"), ("cpu", "nanoseconds")]
    assert (found.period, found.time_nanos) == (10_000_000, int(WALL * 1e9))
    assert found.duration_nanos >= 450_000_000
    at_work = [one for one in found.samples if one.labels == {"thread": "at work"}]
    assert all("compute" in functions(one) for one in at_work)
    assert all(functions(one)[-1] == "_bootstrap" for one in at_work), "outermost last"
    assert spent / 2 < sum(one.values[1] for one in at_work) <= spent
    assert "idle" not in {one.labels["thread"] for one in found.samples}
    assert not any("profiler" in one.labels["thread"] for one in found.samples)


@linux
@real_time
async def test_the_loop_that_is_profiled_is_in_the_profile():
    async def computing_in_slices():
        for _ in range(60):
            compute_briefly()
            await asyncio.sleep(0)

    def compute_briefly():
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass

    found, _ = await asyncio.gather(cpu_profile(0.3, lambda: WALL), computing_in_slices())
    profile = decoded(found.profile())
    names = {name for one in profile.samples for name in functions(one)}
    assert {"compute_briefly", "computing_in_slices"} <= names
    [started] = {one.stack[-1] for one in profile.samples if "compute_briefly" in functions(one)}
    assert started[0].endswith(("<module>", "_run_module_as_main")), (
        "down to the start of the program"
    )


class SlowSampler(Sampler):
    """Is still at its first look when others begin."""

    def __init__(self):
        super().__init__(30, lambda: WALL)
        self.looks, self.goes_on = threading.Event(), threading.Event()

    def _look(self):
        self.looks.set()
        self.goes_on.wait()


@linux
@pytest.mark.parametrize("is_search", [False, True])
def test_turns_are_as_long_as_before_once_all_that_made_them_short_have_ended(is_search):
    """A profile is given up, and the next or a search begins before its thread has ended."""
    usual = sys.getswitchinterval()
    first, second = SlowSampler(), SlowSampler()
    threads = [threading.Thread(target=one.run) for one in (first, second)]
    threads[0].start()
    first.looks.wait()
    if is_search:
        SHORT_TURNS.begin()
    else:
        threads[1].start()
        second.looks.wait()
    first.stop()
    first.goes_on.set()
    threads[0].join()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS), "for the other"
    if is_search:
        SHORT_TURNS.end()
    else:
        second.stop()
        second.goes_on.set()
        threads[1].join()
    assert sys.getswitchinterval() == pytest.approx(usual)


@linux
@real_time
async def test_a_profile_ends_with_its_reader():
    threads = threading.active_count()
    task = asyncio.get_running_loop().create_task(cpu_profile(30, lambda: WALL))
    await asyncio.sleep(0.05)
    assert threading.active_count() == threads + 1
    task.cancel()
    async with asyncio.timeout(5):
        while threading.active_count() > threads:  # noqa: ASYNC110  a thread sets no event
            await asyncio.sleep(0.01)


def deep(left, until):
    if left:
        deep(left - 1, until)
    else:
        compute(until)


@linux
@real_time
def test_stacks_are_cut_and_their_number_is_bounded(monkeypatch):
    monkeypatch.setattr(cpu_profiles, "MAX_STACKS", 0)
    with computing_thread(lambda until: deep(2 * MAX_DEPTH, until)):
        stack = Sampler(0, lambda: WALL)._stack(sys._current_frames()[threading.get_ident()])
        assert 0 < len(stack) <= MAX_DEPTH
        found = decoded(Sampler(0.2, lambda: WALL).run().profile())
    names = {tuple(functions(one)) for one in found.samples}
    assert names == {(FURTHER_STACKS,)}

    monkeypatch.undo()
    with computing_thread(lambda until: deep(2 * MAX_DEPTH, until)):
        found = decoded(Sampler(0.2, lambda: WALL).run().profile())
    at_work = [functions(one) for one in found.samples if one.labels["thread"] == "at work"]
    assert at_work
    for names_of_stack in at_work:
        assert len(names_of_stack) == MAX_DEPTH
        assert "compute" in names_of_stack, "the inner part is kept"


@linux
def test_a_thread_that_has_ended_is_an_error_and_not_the_end_of_the_process():
    with computing_thread() as thread:
        assert time.clock_gettime_ns(cpu_clock(thread.native_id)) > 0
    # The kernel takes a moment to forget it after ``join``.
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        time.sleep(0.001)
    with pytest.raises(OSError, match=r"Invalid argument|No such process"):
        time.clock_gettime_ns(cpu_clock(thread.native_id))


# -- tasks and threads ----------------------------------------------------------------------------


async def outer(secret):
    await inner(f"{secret} {secret}")


async def inner(secret):
    async for _ in endless(secret):
        pass


async def endless(secret):
    while True:
        await asyncio.sleep(3600)
        yield secret


@asynccontextmanager
async def waiting_tasks(count):
    tasks = [
        asyncio.get_running_loop().create_task(outer("hunter2"), name=f"waiting-{n}")
        for n in range(count)
    ]
    await asyncio.sleep(0)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_stacks_of_tasks_go_from_what_is_waited_for_to_the_first_coroutine():
    async with waiting_tasks(1):
        found = {one.name: one for one in activities()}
        text = b"".join(one_by_one()).decode()

    waiting = found["waiting-0"]
    names = [frame.function.rpartition(".")[2] for frame in waiting.stack]
    assert (waiting.kind, waiting.state) == ("task", "waiting")
    assert names[-2:] == ["inner", "outer"]
    assert waiting.stack[-1].line == outer.__code__.co_firstlineno + 1
    assert "task 'waiting-0' [waiting]:\n" in text
    assert f"test_profiles.outer\n\t{__file__}:{outer.__code__.co_firstlineno + 1}\n" in text
    assert found["MainThread"].kind == "thread"
    assert any("running" in one.state for one in found.values())
    assert "hunter2" not in text, "no values of variables"


async def test_equal_stacks_are_counted_together():
    async with waiting_tasks(7):
        text = b"".join(grouped()).decode()
        found = decoded(goroutine_profile(WALL))

    first, _, groups = text.partition("\n\n")
    assert int(first.removeprefix("tasks and threads: total ")) == len(found.samples)
    assert groups.startswith("7 @ task\n")
    counts = [int(line.split()[0]) for line in groups.splitlines() if " @ " in line]
    assert sum(counts) == len(found.samples)
    assert all(a >= b for a, b in pairwise(counts))
    assert found.types == [("goroutine", "count")]
    assert sum(one.labels["name"].startswith("waiting-") for one in found.samples) == 7


# -- memory ---------------------------------------------------------------------------------------


def test_memory_in_use_is_found_at_the_line_that_allocated_it():
    tracemalloc.start(2)
    try:
        kept = [bytes(1000 + n) for n in range(500)]
        found = decoded(heap_profile(WALL))
    finally:
        tracemalloc.stop()

    assert found.types == [("inuse_objects", "count"), ("inuse_space", "bytes")]
    here = [one for one in found.samples if one.stack[0][1] == __file__]
    assert sum(one.values[1] for one in here) >= sum(map(len, kept))
    assert sum(one.values[0] for one in here) >= len(kept)


# -- over HTTP ------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(**options):
    async with cluster(nodes=1, **options) as c, aiohttp.ClientSession() as session:
        server = WebServer(c.scheduler, Metrics(), live={}, ready={}, access=None)
        async with server.listening(LOOPBACK, 0) as url:

            async def get(path, **more):
                async with session.get(f"{url}/debug/pprof{path}", **more) as answer:
                    return answer.status, await answer.read(), answer.headers

            get.url = url  # type: ignore[attr-defined]
            yield get


@linux
@real_time
async def test_profiles_are_served():
    async with serving() as get:
        status, body, headers = await get("/profile?seconds=1")
        assert status == 200
        assert headers["Content-Type"] == "application/octet-stream"
        assert read_profile(body).duration_nanos >= 900_000_000
        status, body, _ = await get("/goroutine")
        assert status == 200
        assert read_profile(body).samples
        for debug, start in ((1, "tasks and threads: total "), (2, "thread 'MainThread'")):
            status, body, headers = await get(f"/goroutine?debug={debug}")
            assert (status, headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
            assert body.decode().startswith(start)
        status, body, headers = await get("/")
        assert (status, headers.get("Content-Type")) == (200, "text/html; charset=utf-8")
        assert b"goroutine?debug=1" in body
        status, _, headers = await get("", allow_redirects=False)
        assert (status, headers["Location"]) == (302, "/debug/pprof/")
        status, body, _ = await get("/cmdline")
        assert status == 200
        assert body.decode().split("\0")[0] == sys.orig_argv[0]


@linux
@real_time
async def test_one_profile_at_a_time_and_none_longer_than_its_answer_may_take():
    async with serving() as get:
        first = asyncio.get_running_loop().create_task(get("/profile?seconds=1"))
        await asyncio.sleep(0.3)
        status, body, _ = await get("/profile?seconds=1")
        assert (status, body) == (429, b"another profile is being taken, try again later\n")
        assert (await first)[0] == 200
        assert (await get("/profile?seconds=1"))[0] == 200
        for seconds in ("51", "0", "-1", "1.5", "many", "9" * 5000):
            status, body, _ = await get(f"/profile?seconds={seconds}")
            assert status == 400
            assert body.decode().endswith("wanted 1 to 50\n")


@real_time
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("heap", "only with PYTHONTRACEMALLOC"),
        ("allocs", "allocations"),
        ("block", "wait without blocking"),
        ("mutex", "one thread schedules"),
        ("threadcreate", "threads"),
        ("symbol", "names"),
        ("trace", "no execution trace"),
        ("nonsense", "unknown profile"),
    ],
)
async def test_what_there_is_not_is_said(name, why):
    async with serving() as get:
        status, body, _ = await get(f"/{name}")
        assert status == 404
        assert why in body.decode()
        assert body.count(b"\n") == 1


@real_time
async def test_without_profiling_nothing_is_found():
    config = SchedulerConfiguration(enable_profiling=False)
    async with serving(config=config) as get:
        for path in ("", "/", "/profile", "/goroutine", "/cmdline", "/heap", "/trace"):
            assert (await get(path, allow_redirects=False))[0] == 404


@real_time
async def test_nothing_is_loaded_before_it_is_asked_for():
    program = (
        "import sys, ksched.web.web_server;"
        "print(*(one for one in sys.modules if one.startswith(('ksched.web.', 'tracemalloc'))))"
    )
    command = [sys.executable, "-c", program]
    done = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    loaded = set(done.stdout.decode().split())
    assert "ksched.web.web_server" in loaded
    own = ("cpu_profile", "heap_profile", "profile_encoding", "profiles", "stacks")
    assert not loaded & {"tracemalloc", *(f"ksched.web.{name}" for name in own)}


def test_arguments_and_files_of_any_bytes_are_shown():
    assert command_line(["ksched", "/\udcff"]) == "ksched\0/\\udcff"

    async def strange():
        code = compile("async def waits(): await asyncio.sleep(3600)", "/\udcff.py", "exec")
        made: dict[str, Any] = {"asyncio": asyncio}
        exec(code, made)
        task = asyncio.get_running_loop().create_task(made["waits"]())
        await asyncio.sleep(0)
        pages = b"".join(grouped()), b"".join(one_by_one())
        task.cancel()
        return pages

    assert all(b"/?.py:1" in page for page in asyncio.run(strange()))


def test_the_command_line_has_no_secrets():
    line = ["ksched", "run", "--token=abc", "--password", "hunter2", "--master=https://u:p@h?t=1"]
    shown = command_line([*line, "--kubeconfig", "/k"]).split("\0")
    assert [shown[0], shown[-1]] == ["ksched", "/k"]
    assert len(shown) == len(line) + 2
    for secret in ("abc", "hunter2", "u:p", "t=1"):
        assert secret not in "".join(shown)


# -- go tool pprof --------------------------------------------------------------------------------


@pytest.fixture
def pprof(tmp_path):
    """Runs ``go tool pprof``, which keeps what it fetches in a folder."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go not found: its pprof cannot read the profiles")

    async def run(*arguments):
        command = [go, "tool", "pprof", *arguments]
        env = {**os.environ, "PPROF_TMPDIR": str(tmp_path), "GOTOOLCHAIN": "local"}
        done = await asyncio.to_thread(
            subprocess.run, command, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@linux
@real_time
async def test_go_tool_pprof_reads_what_it_fetches(pprof):
    async with serving() as get:
        with computing_thread():
            top = await pprof("-top", "-cum", "-seconds=1", f"{get.url}/debug/pprof/profile")
        tags = await pprof("-tags", f"{get.url}/debug/pprof/goroutine")
        goroutines = await pprof("-top", f"{get.url}/debug/pprof/goroutine")

    assert "Type: cpu" in top
    assert "Duration: 1" in top
    [line] = [line for line in top.splitlines() if line.endswith("test_profiles.compute")]
    cumulative = float(line.split()[4].rstrip("%"))
    assert cumulative > 30
    assert "MainThread" in tags
    assert "Type: goroutine" in goroutines
