"""The HTTP client: one session a loop, our own limits, and an exception that says what may be done."""

import asyncio
import contextlib
import gzip
import socket
import subprocess
import sys
import time
from email.utils import formatdate

import certifi
import pytest
from chat_server import STREAM_HEAD, answer, serving, then_reset, then_silence
from child import run_python

from treadle import resolve_model
from treadle.errors import (
    ConfigurationError,
    ContextOverflow,
    IncompleteStream,
    ModelError,
    ModelRejected,
    ModelResponseInvalid,
    ModelUnavailable,
)
from treadle.messages import user_message
from treadle.ports import ModelRequest
from treadle.providers.http.client import HttpClient
from treadle.providers.http.endpoint import Endpoint, Timeouts
from treadle.providers.http.failures import ModelRefused, event_failure, read_failure, retry_after_seconds

KEY = "sk-very-secret-0123456789"


def endpoint(url: str, *, headers=None, secrets=(KEY,), **timeouts: float) -> Endpoint:
    return Endpoint(url, "chat/completions", headers=headers or {}, timeouts=Timeouts(**timeouts), secrets=secrets)


async def fetch(url: str, *, max_bytes: int = 2**20, body: bytes = b"{}", **timeouts: float) -> bytes:
    client = HttpClient()
    try:
        got = await client.send(endpoint(url, **timeouts), body, max_bytes=max_bytes)
        try:
            return await got.read_rest()
        finally:
            got.close()
    finally:
        await client.close()


async def failure(script, **timeouts: float) -> ModelError:
    async with serving(script) as server:
        with pytest.raises(ModelError) as caught:
            await fetch(server.url, **timeouts)
    assert server.url in str(caught.value)
    return caught.value


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_one_connection_serves_one_request_after_another():
    client = HttpClient()
    async with serving(answer("one"), answer("two")) as server:
        place = endpoint(server.url)
        for expected in (b"one", b"two"):
            assert await (await client.send(place, b"{}")).read_rest() == expected
        await client.close()

    assert server.connections == 1


async def test_first_requests_side_by_side_share_one_session():
    client = HttpClient()
    async with serving(answer("x")) as server:
        for _ in range(2):
            answers = await asyncio.gather(*(client.send(endpoint(server.url), b"{}") for _ in range(20)))
            assert {await got.read_rest() for got in answers} == {b"x"}
        await client.close()

    assert server.connections == 20  # another session would have opened connections of its own


async def test_a_closed_client_opens_again():
    client = HttpClient()
    async with serving(answer("x")) as server:
        for _ in range(2):
            await (await client.send(endpoint(server.url), b"{}")).read_rest()
            await client.close()
        await client.close()

    assert server.connections == 2


async def test_a_body_of_many_megabytes_is_sent_whole():
    body = b"x" * 3_000_000
    async with serving(answer("ok")) as server:
        assert await fetch(server.url, body=body) == b"ok"

    assert server.requests[0].body == body


async def test_a_connection_whose_server_answered_before_it_had_read_the_request_is_not_used_again():
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("no", status=413))
        await writer.drain()

    connections: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(refuse, "127.0.0.1", 0, limit=2**10) as listener:
        client = HttpClient()
        place = endpoint(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1")
        for _ in range(2):  # more than what lies in the buffers of two sockets
            got = await client.send(place, b"x" * 30_000_000)
            assert (got.status, await got.read_rest()) == (413, b"no")
            got.close()
        await client.close()
        for writer in connections:
            writer.close()

    assert len(connections) == 2


async def test_a_header_of_one_request_cannot_begin_another():
    client = HttpClient()
    async with serving(answer("x")) as server:
        with pytest.raises(ConfigurationError, match="X-Token"):
            await client.send(endpoint(server.url), b"{}", headers={"X-Token": "a\r\nX-Other: b"})
        got = await client.send(endpoint(server.url, headers={"Content-Length": "7"}), b"{}", headers={"X-Token": "a"})
        assert await got.read_rest() == b"x"
        await client.close()

    assert [(sent.headers["x-token"], sent.headers["content-length"]) for sent in server.requests] == [("a", "2")]


LOOPS = """
import asyncio, sys, threading
from treadle.providers.http.endpoint import Endpoint, Timeouts
from treadle.providers.http.client import shared_client

async def main():
    place = Endpoint(sys.argv[1], "x", headers={}, timeouts=Timeouts())
    answer = await shared_client.send(place, b"{}")
    print((await answer.read_rest()).decode())

asyncio.run(main())
asyncio.run(main())
if sys.argv[2] == "in a daemon thread":
    daemon = asyncio.new_event_loop()
    threading.Thread(target=daemon.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(main(), daemon).result()
if sys.argv[2] == "carelessly":
    careless = asyncio.new_event_loop()
    careless.run_until_complete(main())
    careless.close()
    asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("strict", "how", "asked"), [(("-X", "dev", "-W", "error"), "with care", 2), ((), "in a daemon thread", 3)]
)
async def test_a_session_ends_with_its_loop_and_its_process_leaves_nothing_open_and_no_words(strict, how, asked):
    async with serving(answer("ok")) as server:
        command = [sys.executable, *strict, "-c", LOOPS, server.url, how]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)

    assert (ran.stdout, ran.stderr) == ("ok\n" * asked, "")
    assert server.connections == asked


async def test_a_loop_that_was_closed_carelessly_does_not_hurt_the_next():
    async with serving(answer("ok")) as server:
        output, _ = await run_python(LOOPS, server.url, "carelessly")

    assert output == "ok\nok\nok\nok"


async def test_a_proxy_of_the_environment_is_used():
    async with serving(answer("through the proxy")) as proxy:
        address = proxy.url.removesuffix("/v1")
        output, _ = await run_python(
            ASK, "http://model.invalid/v1", **{**through(address, "HTTP"), "NO_PROXY": "127.0.0.1"}
        )

    assert output == "through the proxy"
    assert proxy.requests[0].line == "POST http://model.invalid/v1/x HTTP/1.1"


ASK = """
import asyncio, sys
from treadle.errors import TreadleError
from treadle.providers.http.endpoint import Endpoint, Timeouts
from treadle.providers.http.client import shared_client

async def main():
    place = Endpoint(sys.argv[1], "x", headers={"Authorization": "Bearer sk-secret"}, timeouts=Timeouts())
    for _ in sys.argv[1:]:  # once for each time that its address is given
        try:
            print((await (await shared_client.send(place, b"{}")).read_rest()).decode())
        except TreadleError as exc:
            print(f"{type(exc).__name__}: {exc} {exc.__cause__!r}")

asyncio.run(main())
"""


def through(proxy: str, scheme: str = "HTTPS") -> dict[str, str]:
    name = f"{scheme}_PROXY"
    return {name: proxy, name.lower(): proxy, "NO_PROXY": "", "no_proxy": ""}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_on_this_machine_is_reached_without_the_proxy(host):
    async with serving(answer("direct")) as server:
        address = server.url.replace("127.0.0.1", host)
        output, _ = await run_python(ASK, address, **through("http://127.0.0.1:9", "HTTP"))

    assert output == "direct"


async def test_a_proxy_of_another_kind_is_refused_with_the_variable_to_change():
    output, _ = await run_python(ASK, "http://model.invalid/v1", **through("socks5://127.0.0.1:9", "HTTP"))

    assert output.startswith("ConfigurationError: The environment names a proxy of the kind 'socks5'")
    assert "Change HTTP_PROXY, or put model.invalid" in output


async def test_a_proxy_that_forbids_the_host_is_told_with_its_status_and_without_the_key():
    async with serving(answer("no", status=403)) as proxy:
        output, _ = await run_python(ASK, "https://model.invalid/v1", **through(proxy.url.removesuffix("/v1")))

    assert output == "ModelRejected: The proxy refuses to connect to https://model.invalid/v1: 403. None"
    assert proxy.requests[0].line.startswith("CONNECT model.invalid:443 ")


async def test_a_server_named_by_its_address_of_version_6_is_reached_through_the_proxy():
    async with serving(answer("no", status=403)) as proxy:
        await run_python(ASK, "http://[fd00::1]:9/v1", **through(proxy.url.removesuffix("/v1"), "HTTP"))

    assert proxy.requests[0].line.startswith("POST http://[fd00::1]:9/v1/")


@pytest.mark.parametrize(
    ("host", "no_proxy", "is_direct"),
    [("10.9.8.7", "10.0.0.0/8", True), ("10.9.8.7", "x.example, 10.1.2.3/8", True), ("11.9.8.7", "10.0.0.0/8", False),
     ("10.9.8.7:8080", "10.0.0.0/8", True), ("[fd00::1]", "fd00::/8", True), ("[fd00::1]:80", "[fd00::1]", True),
     ("10.9.8.7", "10.9.8.7", True), ("10.9.8.7", "10.9.8.0/33", False), ("10.9.8.7", "fd00::/8", False),
     ("10.9.8.7.example", "10.0.0.0/8", False), ("api.example.com", "*.example.com", True),
     ("example.com", "*.example.com", False), ("api.example.com", ".example.com", True), ("api.example.com", "*", True)],
)  # fmt: skip
async def test_no_proxy_names_networks_and_addresses_too(host, no_proxy, is_direct):
    script = "import sys; from treadle.providers.http.client import proxy_for; print(proxy_for('http', sys.argv[1]))"
    output, _ = await run_python(
        script, host, **{**through("http://proxy.invalid:3128", "HTTP"), "NO_PROXY": no_proxy, "no_proxy": no_proxy}
    )
    assert (output.strip() == "None") is is_direct


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("SSL_CERT_FILE", "/nowhere/ca.pem", "SSL_CERT_FILE names '/nowhere/ca.pem', and there is no such file"),
     ("SSL_CERT_FILE", "/", "SSL_CERT_FILE names '/', and there is no such file"),
     ("SSL_CERT_DIR", "/nowhere", "SSL_CERT_DIR names '/nowhere', and there is no such folder"),
     ("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem", "REQUESTS_CA_BUNDLE is not read here: name the file in SSL_CERT_FILE."),
     ("SSL_CERT_FILE", __file__, "test_http.py', which holds no certificate"),
     ("SSL_CERT_FILE", certifi.where(), "https or http in the base URL. None")],
)  # fmt: skip
async def test_certificates_that_the_environment_names_in_vain_are_named_where_tls_fails(name, value, said):
    async def no_tls(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(no_tls, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        output, _ = await run_python(ASK, f"https://127.0.0.1:{port}/v1", **{name: value})
    assert output.startswith("ModelRejected: TLS with https://127.0.0.1")
    assert said.removesuffix(" None") in output
    assert ("SSL_CERT_FILE" in output) is (" None" not in said and name != "SSL_CERT_DIR")


async def test_a_proxy_learns_its_password_with_each_request_over_one_connection():
    async with serving(answer("a"), answer("b")) as proxy:
        address = proxy.url.removesuffix("/v1").replace("http://", "http://me:secret@")
        output, _ = await run_python(ASK, *["http://model.invalid/v1"] * 2, **through(address, "HTTP"))

    assert (output, proxy.connections) == ("a\nb", 1)
    assert [sent.headers["proxy-authorization"] for sent in proxy.requests] == ["Basic bWU6c2VjcmV0"] * 2
    assert {sent.line for sent in proxy.requests} == {"POST http://model.invalid/v1/x HTTP/1.1"}


async def test_a_proxy_that_nobody_runs_may_be_tried_again():
    with socket.socket() as reserved:  # bound and not listening
        reserved.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        output, _ = await run_python(ASK, "https://model.invalid/v1", **through(nobody))

    assert output.startswith("ModelUnavailable: The proxy to https://model.invalid/v1 cannot be reached")
    assert "Check HTTPS_PROXY and NO_PROXY." in output


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("PF5")
@pytest.mark.parametrize("start", [b"", STREAM_HEAD], ids=["no head", "no body"])
async def test_a_server_that_never_begins_is_given_up(start):
    error = await failure(then_silence(start), first_byte_seconds=0.05)

    assert isinstance(error, ModelUnavailable)
    assert "Timeouts.first_byte_seconds" in str(error)


@pytest.mark.row("PF6")
async def test_a_stream_that_falls_silent_is_given_up():
    error = await failure(then_silence(STREAM_HEAD + b"data: 1\n\n"), idle_seconds=0.05)

    assert isinstance(error, ModelUnavailable)
    assert "sent nothing for 0.05 s" in str(error)


@pytest.mark.row("PF7")
async def test_a_stream_that_drips_for_ever_is_given_up():
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        while True:
            writer.write(b":")
            await asyncio.wait([asyncio.ensure_future(writer.drain()), never], timeout=0.01)

    never = asyncio.get_running_loop().create_future()
    error = await failure(drip, total_seconds=0.2, idle_seconds=30)

    assert isinstance(error, ModelUnavailable)
    assert "longer than 0.2 s" in str(error)


@pytest.mark.row("PF16")
async def test_an_endless_body_is_cut_at_the_limit():
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    assert isinstance(await failure(endless), ModelResponseInvalid)


@pytest.mark.row("PF16", "AT-DATA-BODIES")
async def test_a_small_body_that_unpacks_to_a_huge_one_is_cut_at_the_limit():
    bomb = gzip.compress(b"\0" * 20_000_000)
    assert len(bomb) < 100_000

    assert isinstance(await failure(answer(bomb, headers={"Content-Encoding": "gzip"})), ModelResponseInvalid)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "10", None, True])
def test_a_time_limit_must_be_a_positive_number(value):
    with pytest.raises(ConfigurationError, match="idle_seconds"):
        Timeouts(idle_seconds=value)


# --- what breaks -----------------------------------------------------------------------------------------------------


@pytest.mark.row("PF3", "R01")
async def test_a_refused_connection_may_be_tried_again():
    with socket.socket() as reserved:  # bound and not listening: nobody else can take the port meanwhile
        reserved.bind(("127.0.0.1", 0))
        url = f"http://user:passw0rd@127.0.0.1:{reserved.getsockname()[1]}/v1?token=t0ken"
        with pytest.raises(ModelUnavailable) as caught:
            await fetch(url)

    assert "Cannot connect to http://127.0.0.1:" in str(caught.value)
    assert "passw0rd" not in str(caught.value)
    assert "t0ken" not in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a full queue of connections wait in silence")
async def test_a_server_that_accepts_no_connection_is_given_up():
    with socket.socket() as listener, contextlib.ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # fill the queue; nobody accepts
            queued = waiting.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(listener.getsockname())
        with pytest.raises(ModelUnavailable, match=r"within 0\.05 s \(Timeouts\.connect_seconds\)"):
            await fetch(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", connect_seconds=0.05)


@pytest.mark.row("R01")
async def test_a_host_that_does_not_exist_is_named():
    with pytest.raises(ModelUnavailable, match=r"http://model\.invalid/v1"):
        await fetch("http://model.invalid/v1")


@pytest.mark.row("PF4", "R01")
@pytest.mark.parametrize(
    "script", [then_reset(b""), answer("")[:10] + b"Connection: close"], ids=["reset", "half a line"]
)
async def test_a_hang_up_without_an_answer_may_be_tried_again(script):
    error = await failure(script)

    assert error.may_retry


@pytest.mark.row("PF8")
@pytest.mark.parametrize(
    "start",
    [
        answer("x" * 100)[:-50],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ],
    ids=["short of its length", "between chunks"],
)
async def test_a_body_that_breaks_off_is_incomplete(start):
    assert isinstance(await failure(then_reset(start)), IncompleteStream)


async def test_a_server_that_speaks_no_http_is_told_apart():
    error = await failure(b"SSH-2.0-OpenSSH_9.6\r\n\r\nConnection: close")

    assert isinstance(error, ModelResponseInvalid)
    assert error.__cause__ is None


async def test_https_to_a_plain_server_is_not_tried_again():
    async def refuse(_, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ModelError, match="https") as caught:
            await fetch(f"https://127.0.0.1:{port}/v1")

    assert isinstance(caught.value, ModelRejected)


async def test_closing_in_the_middle_closes_the_connection():
    client, closed = HttpClient(), asyncio.Event()

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"data: 1\n\n" * 1000)
                await writer.drain()
        closed.set()

    async with serving(script) as server:
        got = await client.send(endpoint(server.url), b"{}")
        assert await got.read()
        got.close()
        await asyncio.wait_for(closed.wait(), timeout=30)
        await client.close()


# --- where to --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"),
        (" http://[::1]:8080 ", "http://[::1]:8080/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        ("https://h/d?api-version=2024-10", "https://h/d/chat/completions?api-version=2024-10"),
        ("https://u:p@h/v1", "https://h/v1/chat/completions"),
    ],
)
def test_the_path_is_added_to_the_base_url(base_url, url):
    assert str(endpoint(base_url).url) == url


@pytest.mark.parametrize(
    "base_url", ["", "api.openai.com/v1", "ftp://h/v1", "http://", "http://h:99999/", "http://[::1/", "//h"]
)
def test_a_base_url_that_cannot_be_used_is_refused_at_once(base_url):
    with pytest.raises(ConfigurationError, match="must look like https://host/v1"):
        endpoint(base_url)


def test_a_user_in_the_base_url_logs_in_and_is_not_shown():
    place = endpoint("https://user:passw0rd@h/v1?key=q")

    assert place.headers["Authorization"] == "Basic dXNlcjpwYXNzdzByZA=="
    assert place.shown == "https://h/v1"
    assert place.redact("no passw0rd") == "no [redacted]"


def test_a_user_in_the_base_url_beside_a_key_is_refused():
    with pytest.raises(ConfigurationError, match="Use one of them"):
        endpoint("https://user:passw0rd@h/v1", headers={"authorization": "Bearer x"})


@pytest.mark.parametrize(("name", "value"), [("X-Key", "a\nb"), ("X-Key", "kéy"), ("X Key", "a"), ("", "a")])
def test_a_header_that_http_cannot_hold_is_refused_without_showing_it(name, value):
    with pytest.raises(ConfigurationError) as caught:
        endpoint("https://h", headers={name: value})

    assert value not in str(caught.value) or value == "a"


# --- what the provider says ------------------------------------------------------------------------------------------


async def said(status: int, body: str | dict, **headers: str) -> ModelError:
    async with serving(_error(status, body, headers)) as server:
        client = HttpClient()
        got = await client.send(endpoint(server.url), b"{}")
        error = await read_failure(got, key_advice="Check the key.")
        got.close()
        await client.close()
    assert error.status == status
    return error


def _error(status, body, headers):
    from json import dumps

    text = body if isinstance(body, str) else dumps({"error": body})
    return answer(text, status=status, content_type="application/json", headers=headers)


@pytest.mark.row("R01", "PF1", "PF2")
@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 529])
async def test_passing_faults_may_be_tried_again(status):
    error = await said(status, {"message": "later"}, **{"Retry-After": "7"})

    assert isinstance(error, ModelUnavailable)
    assert error.retry_after_seconds == 7
    assert f"answered {status}: later." in str(error)


@pytest.mark.row("R01", "PF17")
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 410, 422, 451, 501])
async def test_refusals_are_not_tried_again(status):
    error = await said(status, {"message": "no such thing"})

    assert isinstance(error, ModelRejected)
    assert "no such thing" in str(error)


@pytest.mark.row("PF12")
@pytest.mark.parametrize(
    ("name", "path", "version"),
    [
        *(("vllm", "", "/v1"), ("vllm", "/gate", "/v1"), ("vllm", "/v2", None), ("vllm", "/openai/v1", None)),
        *(("openai", "", "/v1"), ("anthropic", "/gate", "/v1"), ("cohere", "/v1", "/v2"), ("cohere", "/gate/", "/v2")),
        *(("cohere", "", None), ("cohere", "/v2/", None), ("gemini", "/v1", "/v1beta"), ("gemini", "/v1beta", None)),
        *(("bedrock", "/gate", None), ("bedrock-claude", "/gate", None)),
    ],
)
async def test_a_404_at_an_address_that_lacks_the_version_of_the_dialect_names_it(name, path, version):
    async with serving(answer("{}", status=404)) as server:
        model = resolve_model(f"{name}:m", base_url=server.url.removesuffix("/v1") + path, api_key="k")
        with pytest.raises(ModelRejected, match="answered 404") as caught:
            await anext(model.stream(ModelRequest(messages=(user_message("go"),))))

    said = str(caught.value)
    assert (f"The base URL often ends in {version}." in said) if version else ("often ends" not in said)


async def test_an_empty_account_is_not_tried_again():
    error = await said(429, {"message": "You exceeded your current quota.", "code": "insufficient_quota"})

    assert isinstance(error, ModelRejected)


@pytest.mark.row("PF18")
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (413, {"message": "whatever"}),
        (422, {"message": "too many tokens"}),
        (500, {"message": "the request exceeds the available context size, try increasing it"}),
    ],
)
async def test_a_request_beyond_the_context_is_told_apart_whatever_its_status(status, error):
    assert isinstance(await said(status, error), ContextOverflow)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 100000. This model supports at most 16384.",
        "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4",
        "Unknown parameter: 'content_filter'.",
        "Invalid schema for function 'set_usage_policy': schema must be an object.",
    ],
)
async def test_a_fault_of_the_request_is_neither_the_context_nor_a_refusal(message):
    error = await said(400, {"message": message, "code": "invalid_value"})

    assert type(error) is ModelRejected


@pytest.mark.row("W05", "W11")
@pytest.mark.parametrize("code", ["tool_use_failed", "output_parse_failed"])
async def test_a_call_that_the_server_itself_could_not_read_may_be_tried_again(code):
    error = await said(400, {"code": code, "message": "Failed to call a function.", "failed_generation": "<x>"})

    assert type(error) is ModelResponseInvalid
    assert error.may_retry


@pytest.mark.row("PF17")
@pytest.mark.parametrize("status", [401, 403, 400, 500])
async def test_the_key_is_never_printed(status):
    error = await said(status, {"message": f"Incorrect API key provided: {KEY}. Bearer {KEY}"})

    assert KEY not in str(error)
    assert KEY[:12] not in str(error)
    assert "[redacted]" in str(error)


async def test_a_refused_key_names_what_to_check():
    assert "Check the key." in str(await said(401, {"message": "bad"}))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": "model not found"}', "model not found"),
        ('{"message": "plain"}', "plain"),
        ('{"detail": "of fastapi"}', "of fastapi"),
        ('{"detail": [{"loc": ["body"], "msg": "field required"}]}', "field required"),
        ('[{"error": {"code": 400, "message": "in a list"}}]', "in a list"),
        ("<html><body>Bad gateway\n</body></html>", "<html><body>Bad gateway </body></html>"),
        ("", "answered 400."),
        ("[" * 50_000, "[[["),
        ('{"error": {"message": 5}}', '{"error"'),
        ("null", "null"),
    ],
)
async def test_errors_of_every_shape_are_read(body, words):
    assert words in str(await said(400, body))


async def test_a_long_error_is_shown_in_part():
    assert len(str(await said(400, {"message": "x" * 100_000}))) < 600


async def test_redirects_are_told_and_not_followed():
    async with serving(
        answer("", status=307, headers={"Location": "https://user:pw@elsewhere.example/v1?k=s"})
    ) as server:
        client = HttpClient()
        got = await client.send(endpoint(server.url), b"{}")
        error = await read_failure(got, key_advice="")
        await client.close()

    assert isinstance(error, ModelRejected)
    assert "elsewhere.example" in str(error)
    assert "pw" not in str(error)
    assert len(server.requests) == 1


NOW = "Tue, 03 Nov 2026 10:00:00 GMT"


@pytest.mark.row("R06", "PF1")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "20"}, 20),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "1e9"}, 1e9),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Tue, 03 Nov 2026 10:00:30 GMT", "date": NOW}, 30),
        ({"retry-after": "Tue, 03 Nov 2026 09:00:00 GMT", "date": NOW}, 0),
        ({"retry-after": "Tue, 99 Nov 2026 10:00:30 GMT", "date": NOW}, None),
    ],
)
def test_the_wait_is_read_in_all_its_forms(headers, seconds):
    assert retry_after_seconds(headers) == seconds


@pytest.mark.row("R06")
def test_a_date_without_the_servers_clock_is_read_by_ours():
    assert 3000 < retry_after_seconds({"retry-after": formatdate(time.time() + 3600)}) <= 3600


@pytest.mark.row("R06")
@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached. Please try again in 7.242s. Visit the console.", 7.242),
        ("Rate limit reached. Please try again in 1m26.4s.", 86.4),
        ("Rate limit reached. Please try again in 6ms.", 0.006),
        ("Rate limit reached. Please try again in 2h3m0s.", 7380),
        ("Your token rate limit is exceeded. Please retry after 20 seconds.", 20),
        ("Please retry in 34.5s.", 34.5),
        ("Try again in 5 minutes.", 300),
        ("Try again in 5 moons.", None),
        ("Try again in a while; 5s is too soon.", None),
        ("Slow down.", None),
    ],
)
async def test_a_wait_that_is_told_in_words_is_heard(words, seconds):
    told = await said(429, {"message": words})
    with_header = await said(429, {"message": words}, **{"retry-after": "3"})
    crashed = await said(500, {"message": words})
    streamed = event_failure({"code": "rate_limit_exceeded", "message": words}, endpoint("http://h/v1"))

    assert (told.retry_after_seconds, streamed.retry_after_seconds) == (seconds, seconds)
    assert with_header.retry_after_seconds == max(seconds or 0, 3)  # of two waits that are told, the longer
    assert crashed.retry_after_seconds is None


@pytest.mark.row("R06")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12s"}, 12),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "12s"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "soon"}, None),
        ({"x-ratelimit-remaining-requests": "0"}, None),
        ({"x-ratelimit-reset": "7"}, 7),
        ({"x-ratelimit-reset": "1m3s"}, 63),
        ({"ratelimit-reset": "0.5", "ratelimit-remaining": "0"}, 0.5),
        ({"x-ratelimit-reset": "7", "x-ratelimit-remaining": "4"}, None),
        ({"x-ratelimit-reset": "1793700030", "date": NOW}, 30),
        ({"x-ratelimit-reset": "1793700030500", "x-ratelimit-remaining": "0", "date": NOW}, 30.5),
        ({"x-ratelimit-reset": "2026-11-03T10:00:30Z", "date": NOW}, 30),
        ({"x-ratelimit-reset": "Tue, 03 Nov 2026 10:00:30 GMT", "date": NOW}, 30),
        ({"x-ratelimit-reset": "2026-99-03T10:00:30Z", "date": NOW}, None),
        ({"x-ratelimit-reset": "1793699000", "date": NOW}, 0),
        ({"x-ratelimit-reset": "7", "retry-after": "20"}, 20),
        ({"x-ratelimit-reset": "70", "retry-after": "20"}, 70),
    ],
)
async def test_a_limit_that_is_used_up_says_when_it_is_full_again(headers, seconds):
    assert (await said(429, {"message": "slow down"}, **headers)).retry_after_seconds == seconds


@pytest.mark.row("PF10", "PF15")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "overloaded", "code": 503}, ModelUnavailable),
        ({"message": "elsewhere", "code": "data_residency_mismatch"}, ModelRejected),
        ({"message": "not there", "code": "failed_to_download_image"}, ModelRejected),
        ({"message": "no", "code": "bio_policy"}, ModelRefused),
        ({"message": "Failed to call a function.", "code": "tool_use_failed"}, ModelResponseInvalid),
        ({"message": "slow down", "code": "429"}, ModelUnavailable),
        ({"message": "slow down", "type": "rate_limit_error"}, ModelUnavailable),
        ({"message": "oops", "type": "server_error"}, ModelUnavailable),
        ("Internal error", ModelUnavailable),
        (["odd"], ModelUnavailable),
        ({"message": "bad", "code": 400}, ModelRejected),
        ({"message": "bad", "type": "invalid_request_error"}, ModelRejected),
    ],
)
def test_an_error_inside_a_stream_is_classed_by_its_code(error, kind):
    assert type(event_failure(error, endpoint("http://h/v1"))) is kind


@pytest.mark.row("PF3")
@pytest.mark.parametrize(
    "proxy",
    ["http://[bad", "http://h:port", "http://h:99999", "http://", "http://a b:3128", "://x", "http://me:geheim@h:x"],
)
async def test_a_proxy_whose_address_is_not_valid_is_a_configuration_error_without_its_password(proxy):
    output, _ = await run_python(ASK, "https://model.invalid/v1", **through(proxy))

    assert output.startswith("ConfigurationError: The environment names a proxy")
    assert "HTTPS_PROXY" in output
    assert "geheim" not in output


@pytest.mark.row("PF27")
async def test_a_kept_connection_that_turns_out_closed_costs_one_silent_try():
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the first request of each connection. The next one comes, and the connection closes instead."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"{}")
            seen.append("answered")
            writer.write(answer("ok"))
            await reader.readuntil(b"{}")
            seen.append("closed")
        writer.transport.abort()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    place = endpoint(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1")
    client = HttpClient()
    for _ in range(3):
        assert await (await client.send(place, b"{}")).read_rest() == b"ok"
    await client.close()
    listener.close()

    assert seen == ["answered", "closed", "answered", "closed", "answered"]


@pytest.mark.row("PF27", "PF4")
async def test_a_new_connection_that_closes_without_an_answer_is_a_failure():
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        seen.append("closed")
        writer.transport.abort()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = HttpClient()
    with pytest.raises(ModelUnavailable):
        await client.send(endpoint(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"), b"{}")
    await client.close()
    listener.close()

    assert seen == ["closed"]
