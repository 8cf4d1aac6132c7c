"""The files of the dashboard: one page, its script and its style, served from the package.

Nothing is loaded from elsewhere; the headers forbid it. The page reads the debug paths, with the
credentials of the browser or with a token that its user enters.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from aiohttp import web

FILES: Final = {
    "": ("index.html", "text/html"),
    "dashboard.css": ("dashboard.css", "text/css"),
    "dashboard.js": ("dashboard.js", "text/javascript"),
    "details.js": ("details.js", "text/javascript"),
    "heat_map.js": ("heat_map.js", "text/javascript"),
}
PATHS: Final = tuple(f"/ui/{name}" for name in FILES)
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def show_file(request: web.Request) -> web.Response:
    """Respond with a file of the dashboard, or 304 if the browser has it."""
    body, content_type, tag = _file(request.path.removeprefix("/ui/"))
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _POLICY,
        "ETag": tag,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type=content_type, charset="utf-8", headers=headers)


@cache
def _file(path: str) -> tuple[bytes, str, str]:
    name, content_type = FILES[path]
    body = files("ksched.web").joinpath("ui", name).read_bytes()
    return body, content_type, f'"{sha256(body).hexdigest()[:16]}"'
