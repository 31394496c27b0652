"""Serve a program of the manual as a process, with a scripted model, and ask it over HTTP."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

__all__ = ["RECIPES", "SECONDS", "TUTORIAL", "asked", "environment", "events", "pytest_passes", "served", "up_to"]

RECIPES = Path(__file__).resolve().parents[2] / "docs_src" / "recipes"
TUTORIAL = RECIPES.with_name("tutorial")
SECONDS = 60


def environment(folder: Path, turns: list[dict[str, Any]]) -> dict[str, str]:
    (folder / "script.json").write_text(json.dumps(turns))
    home = {"HOME": str(folder), "TREADLE_HOME": str(folder / "home")}
    return {
        **os.environ,
        **home,
        "MODEL": "script:script.json",
        "PYTHONPATH": os.pathsep.join((str(RECIPES), str(TUTORIAL))),
    }


@contextmanager
def served(app: str, folder: Path, turns: list[dict[str, Any]], *, is_killed: bool = False) -> Iterator[str]:
    """Serve an app with a scripted model; yield its address. It is ended with SIGTERM, or killed."""
    words = (
        ["uvicorn", app if ":" in app else f"{app}:app", "--port", "0", "--timeout-graceful-shutdown", "1"]
        if app != "flask_desk"
        else ["gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:0", f"{app}:app"]
    )
    process = subprocess.Popen(
        [sys.executable, "-m", *words], cwd=folder, env=environment(folder, turns), stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        said = list[str]()
        for line in process.stderr:
            said.append(line)
            if (found := re.search(r"http://127[\d.]+:\d+", line)) is not None:
                break
        else:
            pytest.fail("".join(said))
        yield found[0]
    finally:
        process.kill() if is_killed else process.terminate()
        process.communicate(timeout=SECONDS)


async def events(client: ClientSession, address: str, after: int = 0, **post: Any) -> AsyncGenerator[dict[str, Any]]:
    """Yield the events of a stream with their numbers."""
    request = client.post(address, json=post) if post else client.get(address, headers={"Last-Event-ID": str(after)})
    async with request as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


async def asked(client: ClientSession, method: str, address: str, **words: Any) -> tuple[int, Any]:
    """Return the status and the JSON of an answer; its connection is given back."""
    async with client.request(method, address, **words) as response:
        return response.status, await response.json(content_type=None)


async def up_to(stream: AsyncGenerator[dict[str, Any]], *wanted: str) -> dict[str, Any]:
    """Read a stream up to an event of that type or with that status; then go away."""
    async with aclosing(stream):
        async for event in stream:
            if event.get("status", event["type"]) in wanted:
                return event
    pytest.fail(f"the stream ended without {wanted}")


def pytest_passes(file: Path, folder: Path) -> str:
    """Run a file of tests as its reader does, and return what is said about it."""
    options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-c", os.devnull, f"--rootdir={file.parent}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(file)],
        cwd=folder,
        env={**environment(folder, []), "PYTHONPATH": str(file.parent)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
