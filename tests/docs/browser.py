"""A browser without a window, driven over a pipe: what a page of the manual looks like once it is laid out."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Browser", "browsing", "find_browser"]

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_END = b"\0"


def find_browser() -> str | None:
    """Return the path of Chromium, or None."""
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


class Browser:
    """One tab. Its commands are those of the DevTools protocol."""

    def __init__(self, commands: int, replies: int) -> None:
        self._commands = commands
        self._replies = replies
        self._pending = b""
        self._number = 0
        self._session = ""
        self.requests: list[str] = []
        """The address of each request that the pages made."""
        self.errors: list[str] = []
        """What the scripts of the pages raised."""
        tab = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + _END)
        while (reply := self._receive()).get("id") != self._number:
            pass
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']['message']}")
        result: dict[str, Any] = reply["result"]
        return result

    def show_as(self, width: int, height: int, *, scheme: str = "light") -> None:
        """Lay out for a screen of this many pixels, for a reader who prefers light or dark pages."""
        phone = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, page: Path, anchor: str = "") -> None:
        """Open a file and wait until it is loaded and its scripts have begun."""
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=page.as_uri() + anchor)
        self.evaluate(
            "new Promise(done => document.readyState === 'complete' ? done(1) : addEventListener('load', () => done(1)))"
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, a promise's once it is there."""
        result = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def picture(self, *, whole: bool = False) -> bytes:
        """Return a PNG of the screen, or of the whole page."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def _receive(self) -> dict[str, Any]:
        while _END not in self._pending:
            part = os.read(self._replies, 1 << 20)
            if not part:
                raise RuntimeError("The browser has ended.")
            self._pending += part
        one, _, self._pending = self._pending.partition(_END)
        message: dict[str, Any] = json.loads(one)
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"])[:500])
        return message


@contextmanager
def browsing(program: str, profile: Path) -> Iterator[Browser]:
    """Start the browser and end it. It reads and writes its profile's folder alone, and has no network."""
    their_commands, our_commands = os.pipe()
    our_replies, their_replies = os.pipe()
    arguments = [
        program,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--allow-file-access-from-files",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
    ]
    # The protocol's pipe is read on descriptor 3 and written on 4.
    shell = ["bash", "-c", f'exec "$@" 3<&{their_commands} 4>&{their_replies}', "bash", *arguments]
    process = subprocess.Popen(
        shell, pass_fds=(their_commands, their_replies), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(their_commands)
    os.close(their_replies)
    try:
        yield Browser(our_commands, our_replies)
    finally:
        process.terminate()
        process.wait(timeout=60)
        os.close(our_commands)
        os.close(our_replies)
