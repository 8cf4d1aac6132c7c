"""Chromium without a window, driven over its DevTools protocol: what a page shows and costs."""

from __future__ import annotations

import asyncio
import base64
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_SECONDS = 60.0
CALL_SECONDS = 60.0
LOOK_SECONDS = 0.1


def find_browser() -> str | None:
    """Return the path of an installed Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab. ``complaints`` are errors and warnings of its console, and failed requests."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.complaints: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._calls[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, CALL_SECONDS)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript; a promise is waited for."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression[:200]}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def until(self, expression: str, seconds: float = 30.0) -> None:
        """Wait until an expression is true."""
        check = f"() => {{ try {{ return {expression}; }} catch {{ return false; }} }}"
        promise = (
            f"new Promise((done) => {{ const check = {check}; const step = () => check() ? "
            "done(true) : setTimeout(step, 50); step(); })"
        )
        await asyncio.wait_for(self.evaluate(promise), seconds)

    async def text(self, selector: str) -> str:
        """Return the text of the first element that a selector finds."""
        found: str = await self.evaluate(f"document.querySelector({selector!r}).textContent")
        return found

    async def until_text(self, selector: str, part: str) -> None:
        """Wait until an element has a text in it."""
        await self.until(f"document.querySelector({selector!r}).textContent.includes({part!r})")

    async def press(self, key: str, code: int = 0) -> None:
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text
            )

    async def screenshot(self, file: Path) -> None:
        answer = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        await asyncio.to_thread(file.write_bytes, base64.b64decode(answer["data"]))

    async def listen(self) -> None:
        """Read answers and complaints until the tab is closed."""
        async for message in self._socket:
            event = message.json()
            if "id" in event:
                waiting = self._calls.pop(event["id"])
                if "error" in event:
                    waiting.set_exception(RuntimeError(str(event["error"])))
                else:
                    waiting.set_result(event["result"])
            elif event["method"] == "Runtime.exceptionThrown":
                self.complaints.append(str(event["params"]["exceptionDetails"])[:500])
            elif event["method"] == "Runtime.consoleAPICalled":
                if event["params"]["type"] in ("error", "warning", "assert"):
                    self.complaints.append(str(event["params"]["args"])[:500])
            elif event["method"] == "Log.entryAdded":
                entry = event["params"]["entry"]
                self.complaints.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")


@asynccontextmanager
async def opened(url: str, *, width: int = 1400, height: int = 1000) -> AsyncIterator[Page]:
    """Open a page in a browser of its own until the block ends."""
    program = find_browser()
    if program is None:
        raise RuntimeError(f"no browser found, wanted one of {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory(
        prefix="ksched-browser-", ignore_cleanup_errors=True
    ) as folder:
        process = await asyncio.create_subprocess_exec(
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            f"--window-size={width},{height}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            port = await asyncio.to_thread(_debugging_port, Path(folder))
            async with aiohttp.ClientSession() as session, _tab(session, port) as page:
                for domain in ("Page", "Runtime", "Log"):
                    await page.call(f"{domain}.enable")
                await page.call("Page.navigate", url=url)
                yield page
        finally:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def _tab(session: aiohttp.ClientSession, port: int) -> AsyncIterator[Page]:
    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
        tabs = await answer.json()
    address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
    async with session.ws_connect(address, max_msg_size=0) as socket, asyncio.TaskGroup() as tasks:
        page = Page(socket)
        listening = tasks.create_task(page.listen())
        try:
            yield page
        finally:
            listening.cancel()


def _debugging_port(folder: Path) -> int:
    """Wait for the file in which the browser writes its port."""
    file = folder / "DevToolsActivePort"
    for _ in range(int(START_SECONDS / LOOK_SECONDS)):
        if file.exists() and (lines := file.read_text().split()):
            return int(lines[0])
        time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"the browser did not start within {START_SECONDS:g} s")
