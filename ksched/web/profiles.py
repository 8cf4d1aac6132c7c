"""``/debug/pprof``: what an operator reads with ``go tool pprof``, or as text.

kube-scheduler: routes.Profiling.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from aiohttp import web

from ksched.redaction import REDACTED, is_secret_key, redact_text
from ksched.web.cpu_profile import cpu_profile, has_cpu_clocks
from ksched.web.heap_profile import heap_profile, is_tracked
from ksched.web.profile_encoding import CONTENT_TYPE, Profile, profile_pieces
from ksched.web.rendering import Renderer
from ksched.web.stacks import goroutine_profile, grouped, one_by_one

INDEX: Final = "/debug/pprof/"
DEFAULT_SECONDS: Final = 30
MAX_SECONDS: Final = 50
"""The answer must be complete within the 60 seconds of a request."""

_ABSENT: Final = {
    "allocs": "allocations that were freed again are not recorded",
    "block": "tasks wait without blocking a thread: see /debug/pprof/goroutine",
    "mutex": "one thread schedules, so locks are not contended",
    "symbol": "profiles carry the names of their functions",
    "threadcreate": "threads are not recorded when they start: see /debug/pprof/goroutine",
    "trace": "Python has no execution trace",
}
_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>/debug/pprof/</title></head><body>
<h1>/debug/pprof/</h1>
<ul>
<li><a href="profile?seconds=5">profile</a>: CPU time by stack, of ?seconds=1 to 50 (30);
for <code>go tool pprof</code></li>
<li><a href="goroutine?debug=1">goroutine</a>: what tasks and threads do now;
?debug=1 by stack, ?debug=2 one by one, else for <code>go tool pprof</code></li>
<li><a href="heap">heap</a>: memory in use by the lines that allocated it, with
PYTHONTRACEMALLOC; for <code>go tool pprof</code></li>
<li><a href="cmdline">cmdline</a>: the command line, without secrets</li>
</ul>
</body></html>
"""
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
}


class Profiles:
    """Answers requests under the path; ``wall`` is the time of day."""

    def __init__(self, renderer: Renderer, wall: Callable[[], float]) -> None:
        self._renderer, self._wall = renderer, wall
        self._is_profiling = False

    async def response(self, request: web.Request) -> web.Response:
        """Respond; the last part of the path is the name of a profile."""
        if request.path == INDEX.rstrip("/"):
            return web.Response(status=302, headers={"Location": INDEX, **_HEADERS})
        name = request.path.removeprefix(INDEX)
        if not name:
            return web.Response(text=_PAGE, content_type="text/html", headers=_HEADERS)
        if name == "profile":
            return await self._cpu(request)
        if name == "goroutine":
            return self._goroutines(request)
        if name == "heap":
            return self._heap()
        if name == "cmdline":
            return web.Response(text=command_line(sys.orig_argv), headers=_HEADERS)
        why = _ABSENT.get(name)
        raise web.HTTPNotFound(text=f"{name}: {why}\n" if why else "unknown profile\n")

    async def _cpu(self, request: web.Request) -> web.Response:
        seconds = _seconds(request)
        if not has_cpu_clocks():
            text = "profile: this system has no clocks for the CPU time of threads\n"
            raise web.HTTPNotFound(text=text)
        if self._is_profiling:
            raise web.HTTPTooManyRequests(text="another profile is being taken, try again later\n")
        self._is_profiling = True
        try:
            found = await cpu_profile(seconds, self._wall)
        finally:
            self._is_profiling = False
        return self._for_pprof("profile", found.profile())

    def _goroutines(self, request: web.Request) -> web.Response:
        debug = request.query.get("debug", "0")
        if debug == "0":
            return self._for_pprof("goroutine", goroutine_profile(self._wall()))
        return self._text(grouped() if debug == "1" else one_by_one())

    def _heap(self) -> web.Response:
        if not is_tracked():
            text = "heap: allocations are recorded only with PYTHONTRACEMALLOC=1\n"
            raise web.HTTPNotFound(text=text)
        return self._for_pprof("heap", heap_profile(self._wall()))

    def _for_pprof(self, name: str, profile: Profile) -> web.Response:
        headers = {**_HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
        body = self._renderer.stream(profile_pieces(profile))
        return web.Response(body=body, content_type=CONTENT_TYPE, headers=headers)

    def _text(self, pieces: Iterator[bytes]) -> web.Response:
        body = self._renderer.stream(pieces)
        return web.Response(body=body, content_type="text/plain", charset="utf-8", headers=_HEADERS)


def _seconds(request: web.Request) -> int:
    text = request.query.get("seconds", str(DEFAULT_SECONDS))
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if not is_number or not 0 < int(text) <= MAX_SECONDS:
        wanted = f"wanted 1 to {MAX_SECONDS}"
        raise web.HTTPBadRequest(text=f"seconds: got {text[:40]!r}, {wanted}\n")
    return int(text)


def command_line(arguments: Sequence[str]) -> str:
    """Return arguments without secrets, each ended by NUL but the last."""
    shown, is_secret = [], False
    for argument in arguments:
        shown.append(REDACTED if is_secret else redact_text(argument))
        # ``--token SECRET``; ``--token=SECRET`` is text with a secret in it.
        is_secret = argument.startswith("-") and "=" not in argument and is_secret_key(argument)
    # Arguments may be any bytes, those of the page are UTF-8.
    return "\0".join(shown).encode(errors="backslashreplace").decode()
