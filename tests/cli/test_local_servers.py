"""Model servers on this machine, as the doctor finds them. Each answers over real HTTP."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from treadle.cli.model_servers import find_models
from treadle.resolve import local_servers


@contextmanager
def answering(body: bytes, *, status: int = 200, location: str = "") -> Iterator[tuple[str, list[str]]]:
    """Serve one answer on loopback; give its base URL and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            if location:
                self.send_header("location", location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def listing(*names):
    return json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in names]}).encode()


def elsewhere(url):
    """Let all local servers be looked for at one address, so that none of this machine's answers."""
    return {f"{name.upper()}_BASE_URL": url for name in local_servers()}


def test_the_doctor_names_the_models_of_a_server_and_how_to_use_them(treadle):
    nobody = "http://127.0.0.1:9/v1"
    with answering(listing("qwen3:8b", "gemma3")) as (url, asked):
        ran = treadle("doctor", code=0, **{**elsewhere(nobody), "OLLAMA_BASE_URL": url})

    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("ok    ollama")]
    assert f"{url} serves qwen3:8b, gemma3: -m ollama:qwen3:8b" in line
    assert asked == ["/v1/models"]
    assert "vllm" not in ran.stdout


def test_the_doctor_says_that_none_answers_and_tells_a_server_without_models(treadle):
    with answering(b'{"object": "list", "data": null}') as (url, _):
        empty = treadle("doctor", code=0, **{**elsewhere("http://127.0.0.1:9/v1"), "OLLAMA_BASE_URL": url})
    none = treadle("doctor", code=0, **elsewhere("http://127.0.0.1:9/v1"))

    assert "serves no model" in empty.stdout
    assert "warn  servers     none of llamacpp, lmstudio, ollama, vllm answers" in none.stdout


def test_the_doctor_warns_of_no_key_and_no_server_that_the_chosen_model_does_not_need(treadle):
    nobody = elsewhere("http://127.0.0.1:9/v1")
    levels = [
        {check["name"]: check["level"] for check in treadle.json("doctor", "--json", **variables)["checks"]}
        for variables in (nobody, {**nobody, "TREADLE_MODEL": "demo"})
    ]

    assert [(found["keys"], found["servers"]) for found in levels] == [("warn", "warn"), ("ok", "ok")]


def test_of_many_models_eight_are_named_and_their_names_are_not_obeyed(treadle):
    names = ["\x1b[31m" + "m" * 500, *(f"m{number}" for number in range(99))]
    with answering(listing(*names)) as (url, _):
        address = url.replace("//", "//ada:s3cret@")
        ran = treadle("doctor", code=0, **{**elsewhere("http://127.0.0.1:9/v1"), "LMSTUDIO_BASE_URL": address})

    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("ok    lmstudio")]
    assert "m6 and 92 more" in line
    assert "\x1b" not in ran.stdout
    assert "s3cret" not in ran.stdout
    assert len(line) < 500


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"<html>It works!</html>", 200),
        (b"", 200),
        (b"[]", 200),
        (b'{"data": "many"}', 200),
        (b'{"data": [{"name": "x"}]}', 200),
        (b'{"data": [{"id": "\xff"}]}', 200),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b', "data": []}', 200),
        (b'{"data": [' + b" " * 2_000_000 + b"]}", 200),
        (listing("hidden"), 404),
    ],
)
async def test_another_kind_of_server_is_none(body, status):
    with answering(body, status=status) as (url, _):
        assert await find_models({"ollama": url}) == {}


async def test_a_server_is_not_followed_elsewhere():
    with (
        answering(listing("far")) as (far, asked_far),
        answering(b"", status=302, location=f"{far}/models") as (near, asked_near),
    ):
        assert await find_models({"ollama": near}) == {}

    assert (asked_near, asked_far) == (["/v1/models"], [])


async def test_a_server_that_never_answers_holds_nobody_up():
    async def say_nothing(reader, writer):
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        with answering(listing("m")) as (url, _):
            found = await find_models({"silent": f"http://127.0.0.1:{port}/v1", "well": f"{url}/"})

    assert found == {"well": ["m"]}


@pytest.mark.parametrize(
    "address", ["", "no url", "ftp://127.0.0.1/v1", "http://", "http://[", "http://127.0.0.1:99999"]
)
async def test_an_address_that_is_none_is_no_server(address):
    assert await find_models({"ollama": address}) == {}
