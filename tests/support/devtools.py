"""A real browser that is driven as a person does: it clicks where it sees, types, and counts.

Owns the process of a headless Chromium and the protocol of its developer tools. A click goes to the
middle of an element that is visible and not covered, as a mouse's does. Must not know any page.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.browser import BROWSER
from tests.support.cluster import LOOK_SECONDS, passed

SECONDS = 15.0
"""Longest wait for anything that a page shows: many of its updates."""

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""An answer of the browser: a picture of a long page."""

_FIND = """(([kind, text]) => {
  const visible = e => { const r = e.getBoundingClientRect(); return r.width && r.height; };
  const label = e => e.getAttribute("aria-label") || e.innerText || "";
  const said = e => label(e).replace(/\\s+/g, " ").trim();
  const all = kind === "css" ? [...document.querySelectorAll(text)]
    : [...document.querySelectorAll("a, button, summary, input, select, th button")]
        .filter(e => said(e).startsWith(text));
  const open = document.querySelector("dialog[open]");
  const e = all.filter(visible).find(one => !open || open.contains(one));
  if (!e || e.disabled) return null;
  e.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
  const r = e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
  const top = document.elementFromPoint(x, y);
  return top && (e.contains(top) || top.contains(e)) ? [x, y] : null;
})"""


class BrowserProcess:
    """A running Chromium; `endpoint` is the address of its developer tools."""

    def __init__(self, folder: Path) -> None:
        assert BROWSER is not None
        self._process = subprocess.Popen(
            [
                *(BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *("--disable-extensions", "--disable-background-networking", "--no-first-run"),
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                *("--remote-debugging-port=0", f"--user-data-dir={folder / 'profile'}"),
                "about:blank",
            ],
            env={**os.environ, "HOME": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        found = None
        for line in self._process.stderr:
            found = re.search(r"DevTools listening on (ws://\S+)", line)
            if found:
                break
        assert found is not None, "chromium ended before it listened"
        self.endpoint = found[1]

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(SECONDS)
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextmanager
def chromium(folder: Path) -> Iterator[BrowserProcess]:
    """A browser, ended in the end."""
    process = BrowserProcess(folder)
    try:
        yield process
    finally:
        process.close()


class Person:
    """Someone before a page of their own; `clicks` counts what the mouse did."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._session: str | None = None
        self.clicks = 0
        self.asked: list[str] = []
        """Addresses that the page asked for."""
        self.complaints: list[str] = []
        """Errors of scripts, and lines of the console that say so."""

    async def hear(self) -> None:
        """Take what the browser says, until it ends."""
        async for frame in self._socket:
            message = json.loads(frame.data)
            if "id" in message:
                waiting = self._waiting.pop(message["id"])
                if not waiting.done():
                    waiting.set_result(message)
            else:
                self._heard(message["method"], message["params"])

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.complaints.append(json.dumps(params["args"])[:500])

    async def tell(self, method: str, **params: Any) -> Any:
        """Give a command to the developer tools, and return its result."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        found = await asyncio.wait_for(answer, SECONDS)
        assert "error" not in found, (method, found)
        return found["result"]

    async def begin(self) -> str:
        """Open a page that shares nothing with others; returns what closes it."""
        context = (await self.tell("Target.createBrowserContext"))["browserContextId"]
        target = await self.tell("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.tell(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.tell(f"{domain}.enable")
        await self.tell("Emulation.setFocusEmulationEnabled", enabled=True)
        return str(context)

    async def end(self, context: str) -> None:
        """Close the page."""
        self._session = None
        await self.tell("Target.disposeBrowserContext", browserContextId=context)

    async def sees(self, width: int, height: int, *, dark: bool = False) -> None:
        """Have a window of this size, in the light or in the dark."""
        await self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self.tell("Emulation.setEmulatedMedia", features=[scheme, still])

    async def opens(self, address: str) -> None:
        """Go to an address."""
        await self.tell("Page.navigate", url=address)

    async def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = await self.tell(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, expression: str, within: float = SECONDS) -> Any:
        """The first value of an expression that is true."""
        deadline = asyncio.get_running_loop().time() + within
        while True:
            found = await self.js(expression)
            if found:
                return found
            if asyncio.get_running_loop().time() > deadline:
                shown = await self.js("document.body.innerText")
                raise AssertionError(f"not true in {within} s: {expression}\n{shown[:3000]}")
            await passed(5 * LOOK_SECONDS)

    async def reads(self, *texts: str) -> None:
        """Wait until the page shows these texts."""
        for text in texts:
            await self.until(f"(document.body?.innerText ?? '').includes({json.dumps(text)})")

    async def clicks_on(self, text: str, *, css: bool = False) -> None:
        """Click on what begins with this text, or on a selector."""
        wanted = json.dumps(["css" if css else "text", text])
        x, y = await self.until(f"{_FIND}({wanted})")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self.tell(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                clickCount=1,
            )
        self.clicks += 1

    async def types(self, text: str) -> None:
        """Type into what has the focus."""
        await self.tell("Input.insertText", text=text)

    async def presses(self, key: str) -> None:
        """Press a key: a character, `Enter`, `Tab` or `Escape`."""
        codes = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, "")}
        code, text = codes.get(key, (ord(key[0].upper()), key))
        known = {"key": key, "windowsVirtualKeyCode": code}
        await self.tell("Input.dispatchKeyEvent", type="keyDown", text=text, **known)
        await self.tell("Input.dispatchKeyEvent", type="keyUp", **known)

    async def picture(self, *, whole: bool = True) -> bytes:
        """The window, or the whole page, as a PNG."""
        found = await self.tell("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])


@asynccontextmanager
async def person(browser: BrowserProcess) -> AsyncIterator[Person]:
    """Someone with an empty page."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(browser.endpoint, max_msg_size=MESSAGE_BYTES_MAX) as socket,
    ):
        found = Person(socket)
        hearing = asyncio.ensure_future(found.hear())
        try:
            context = await found.begin()
            try:
                yield found
            finally:
                await found.end(context)
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
