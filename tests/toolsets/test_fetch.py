"""Fetch: public addresses only, whatever they are called; each redirection judged; nothing of the person's is sent."""

import asyncio
import gzip
import http.server
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from treadle import Agent, ConfigurationError, Decision, allow, ask, deny, first_of
from treadle.errors import Rejected
from treadle.messages import ToolCall
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import Prefixed
from treadle.toolsets.fetch import fetch_tool, is_allowed, networks, target_of

HOSTILE = {
    "declarations": "<p>seen</p>" + "<!" * 1_000_000,
    "tags": "<p>seen</p>" + "<a " * 500_000,
    "sections": "<p>seen</p>" + "<![a<" * 300_000,
    "section": "<p>seen</p><![if x]><p>also</p><![endif]>",
    "unended": "<p>seen &amp; <b",
}
LOOPBACK = ["127.0.0.0/8", "::1/128"]


class Site(http.server.BaseHTTPRequestHandler):
    """A few pages, and what was asked for them."""

    asked: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:  # noqa: C901, PLR0912 - one page a case
        self.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        port = self.server.server_address[1]
        kind, body, more = "text/html; charset=utf-8", b"", {}
        status = 200
        match self.path.partition("?")[0]:
            case "/page":
                body = "<head><title>T</title><script>x()</script></head><body><h1>Gr\u00fc\u00dfe</h1><p>one  two</p></body>".encode()
            case "/hostile":
                body = HOSTILE[self.path.partition("?")[2]].encode()
            case "/long":
                kind, body = "text/plain", b"x" * 50_000
            case "/bomb":
                body, more = gzip.compress(b"y" * 50_000_000), {"Content-Encoding": "gzip"}
            case "/binary":
                kind, body = "image/png", b"\x89PNG\0\0"
            case "/missing":
                status, body = 404, b"<p>no</p>"
            case "/here":
                status, more = 302, {"Location": "/page"}
            case "/away":
                status, more = 302, {"Location": f"http://localhost:{port}/page"}
            case "/private":
                status, more = 302, {"Location": "http://10.1.2.3/x"}
            case "/file":
                status, more = 302, {"Location": "file:///etc/passwd"}
            case "/round":
                status, more = 302, {"Location": "/round"}
            case "/upgrade":
                status, more = 101, {"Connection": "Upgrade", "Upgrade": "websocket"}
            case "/charset":
                kind, body = f"text/plain; charset={self.path.partition('?')[2]}", b"a-" + b"b" * 2_000_000
            case "/never":
                self.server.held.wait(60)
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def site() -> Iterator[Any]:
    handler = type("Handler", (Site,), {"asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.held = threading.Event()  # type: ignore[attr-defined]  # for the page that never comes
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    server.base = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]  # as above
    server.asked = handler.asked  # type: ignore[attr-defined]  # as above
    yield server
    server.held.set()  # type: ignore[attr-defined]  # as above
    server.shutdown()
    server.server_close()


class Context:
    """The part of a ToolContext that the tool uses, of a call that a person has allowed: it decides as it was told to."""

    call = ToolCall(id="call_1", name="fetch", arguments="{}")
    decision = Decision(kind="allow", scope="call")

    def __init__(self, kind: str = "ask") -> None:
        self.kind = kind
        self.asked: list[str] = []

    async def decide(self, action: str, arguments: Any, *, effect: str) -> Any:
        self.asked.append(arguments["url"])
        return Decision(kind=self.kind, scope="tool")  # type: ignore[arg-type]  # one of the four


def get(url: str, context: Any = None, *, tool: Any = None, **more: Any) -> Any:
    tool = tool or fetch_tool(allowed_networks=LOOPBACK)
    tool.validate({"url": url})
    return asyncio.run(tool.run({"url": url, **more}, context or Context()))


def refused(url: str, **more: Any) -> str:
    with pytest.raises(Rejected) as found:
        get(url, **more)
    return str(found.value.code)


@pytest.mark.row("D-FETCH")
def test_a_page_becomes_text(site: Any):
    found = get(f"{site.base}/page")

    assert (found["output"], found["status"], found["media_type"]) == ("T\n\nGrüße\n\none two", 200, "text/html")
    assert "<h1>" in get(f"{site.base}/page", raw=True)["output"]
    assert get(f"{site.base}/missing")["status"] == 404
    assert refused(f"{site.base}/binary") == "not_text"
    assert not {"cookie", "authorization", "referer"} & site.asked[0][1].keys()


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_page_that_is_made_to_be_read_slowly_becomes_text_in_its_time(site: Any, kind: str):
    found = get(f"{site.base}/hostile?{kind}")
    assert found["output"].startswith("seen")
    assert ("also" in found["output"]) == (kind == "section")


def test_a_long_page_goes_on_and_a_large_one_is_cut(site: Any):
    first = get(f"{site.base}/long")
    assert len(first["output"]) == first["next_offset"] == 40_000
    assert len(get(f"{site.base}/long", offset=40_000)["output"]) == 10_000
    bomb = get(f"{site.base}/bomb", tool=fetch_tool(allowed_networks=LOOPBACK, max_bytes=10_000), raw=True)
    assert (len(bomb["output"]), bomb["truncated"]) == (10_000, True)
    assert refused(f"{site.base}/never", tool=fetch_tool(allowed_networks=LOOPBACK, timeout=0.2)) == "timeout"


@pytest.mark.row("D-FETCH")
def test_a_server_that_wants_another_protocol_sends_no_page(site: Any):
    assert refused(f"{site.base}/upgrade") == "unreachable"


@pytest.mark.row("D-FETCH")
def test_each_redirection_is_judged_anew(site: Any):
    context = Context("ask")
    assert get(f"{site.base}/here")["url"] == f"{site.base}/page"
    away = get(f"{site.base}/away", context)
    port = site.server_address[1]
    assert (away["output"], away["redirect"]) == ("", f"http://localhost:{port}/page")
    assert context.asked == [f"http://localhost:{port}/page"]
    assert get(f"{site.base}/away", Context("allow"))["output"].startswith("T")
    assert refused(f"{site.base}/private", context=Context("allow")) == "not_public"
    assert refused(f"{site.base}/file") == "bad_redirect"
    assert refused(f"{site.base}/round") == "too_many_redirects"


@pytest.mark.row("D-FETCH")
@pytest.mark.parametrize(
    ("rules", "found"),
    [
        (lambda base: first_of(deny(f"fetch(url={base}/page)"), allow("fetch")), "redirect"),
        (lambda base: first_of(ask(f"fetch(url={base}/page)"), allow("fetch")), "redirect"),
        (lambda base: allow(f"fetch(url={base}/here)"), "redirect"),
        (lambda base: allow("fetch(127.0.0.1)"), "media_type"),
    ],
)
async def test_a_redirection_within_a_host_passes_no_rule(site: Any, rules: Any, found: str):
    model = ScriptedModel([call("fetch", url=f"{site.base}/here"), text("ok")])

    result = await Agent(model, tools=[fetch_tool(allowed_networks=LOOPBACK)], policy=rules(site.base)).run("go")

    assert found in json.loads(result.messages[2].results[0].content)
    assert [path for path, _ in site.asked] == (["/here"] if found == "redirect" else ["/here", "/page"])


@pytest.mark.row("D-FETCH")
async def test_a_person_who_allows_a_page_allows_to_be_led_on_within_its_host_and_no_further(site: Any):
    for page, asked in (("/here", ["/here", "/page"]), ("/away", ["/away"])):
        site.asked.clear()
        model = ScriptedModel([call("fetch", url=f"{site.base}{page}"), text("ok")])
        tool = fetch_tool(allowed_networks=LOOPBACK)
        await Agent(model, tools=[tool], approver=lambda _: "allow").run("go")
        assert [path for path, _ in site.asked] == asked


@pytest.mark.row("D-FETCH")
async def test_a_redirection_is_judged_by_the_name_that_the_tool_has(site: Any):
    model = ScriptedModel([call("web_fetch", url=f"{site.base}/away"), text("ok")])
    tools = Prefixed([fetch_tool(allowed_networks=LOOPBACK)], "web_")

    result = await Agent(model, tools=[tools], policy=allow("web_fetch(host=127.0.0.1)")).run("go")

    assert "redirect" in json.loads(result.messages[2].results[0].content)
    assert [path for path, _ in site.asked] == ["/away"]


@pytest.mark.row("D-FETCH")
@pytest.mark.parametrize("charset", ["punycode", "PunyCode", "idna", "unicode_escape", "undefined", "no-such"])
def test_a_page_in_an_encoding_of_no_page_is_read_as_utf_8(site: Any, charset: str):
    assert get(f"{site.base}/charset?{charset}")["output"] == "a-" + "b" * 39_998


@pytest.mark.row("D-FETCH", "AT-INJECTION-NETWORK")
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "0.0.0.0", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]", "169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "10.0.0.1", "172.16.5.4", "192.168.1.1", "[fe80::1]",
        "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]", "224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "LOCALHOST.",
    ],
)  # fmt: skip
def test_what_is_not_public_is_not_reached(site: Any, host: str):
    code = refused(f"http://{host}:{site.server_address[1]}/page", tool=fetch_tool())

    assert code in ("not_public", "host_not_found")
    assert site.asked == []


def test_public_addresses_are_told_from_others():
    assert is_allowed("93.184.216.34")
    assert is_allowed("2606:4700::1111")
    assert not is_allowed("fe80::1%eth0")
    # Metadata services, relays and networks of a site, which some versions of Python take for public.
    own = ["192.0.0.192", "192.0.0.8", "192.88.99.1", "168.63.129.16", "fec0::1", "3fff::1", "64:ff9b::a83f:8110"]
    assert [one for one in own if is_allowed(one)] == []
    assert is_allowed("168.63.129.16", networks(["168.63.129.16/32"]))
    assert is_allowed("10.1.2.3", networks(["10.1.0.0/16"]))
    assert not is_allowed("10.2.2.3", networks(["10.1.0.0/16"]))
    with pytest.raises(ConfigurationError, match="not a network"):
        fetch_tool(allowed_networks=["nowhere"])


@pytest.mark.row("AT-INJECTION-NETWORK")
@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://a/b", "http://a@b/", "http://a:b@c/", "http://a\\@b/", "http://a b/", "http://a\n/", "http:///x",
     "http://a:99999/", "http://[::1%25lo]/", "http://exa%6dple/", "javascript:1", "//a/b", "http://\u2488.com/", "unix:/x"],
)  # fmt: skip
async def test_what_two_readers_may_read_in_two_ways_is_invalid(url: str):
    model = ScriptedModel([call("fetch", url=url), text("ok")])
    result = await Agent(model, tools=[fetch_tool()], policy=allow("*")).run("go")

    assert [one.status for one in result.tool_calls] == ["invalid_arguments"]


def test_an_address_has_one_form():
    assert target_of("HTTP://Example.COM.:80/a?b#c").url == "http://example.com/a?b"
    assert target_of("https://b\u00fccher.example").url == "https://xn--bcher-kva.example/"


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/public/../admin", "/admin"), ("/public/%2e%2E/admin", "/admin"), ("/%61dmin", "/admin"), ("/./admin", "/admin"),
        ("/../../admin", "/admin"), ("/public/%2e/..//admin", "//admin"), ("/a%2fb", "/a%2Fb"), ("/\u00e9?q=%7e%3d", "/%C3%A9?q=~%3D"),
        ("/100%", "/100%25"), ("/a/..", "/"), ("/a/b/..", "/a/"), ("", "/"), ("/a//b/", "/a//b/"), ("/...", "/..."),
    ],
)  # fmt: skip
async def test_a_path_has_one_form_which_is_judged_and_asked_for(path: str, asked: str):
    from yarl import URL

    target = target_of(f"https://example.com{path}")

    assert target.url == f"https://example.com{asked}"
    assert target_of(target.url).url == target.url
    assert URL(target.url).raw_path == URL(target.url, encoded=True).raw_path


@pytest.mark.parametrize(
    "path", ["/public/..%2fadmin", "/public%2F..%2fadmin", "/public/%2e.%5cadmin", "/public%2f%2e%2e/admin"]
)
def test_a_way_up_behind_an_encoded_slash_is_refused(path: str):
    with pytest.raises(ValueError, match="goes up"):
        target_of(f"https://example.com{path}")


@pytest.mark.row("D-FETCH")
async def test_a_rule_on_an_address_holds_for_each_spelling_of_its_path(site: Any):
    rules = first_of(deny(f"fetch(url={site.base}/page*)"), allow(f"fetch(url={site.base}/public/*)"))
    for path, status in (
        ("/%70age", "denied"), ("/public/../page", "denied"), ("/public/%2e%2e/page", "denied"), ("/public/../other", "approval_required"),
    ):  # fmt: skip
        model = ScriptedModel([call("fetch", url=f"{site.base}{path}"), text("ok")])
        result = await Agent(model, tools=[fetch_tool(allowed_networks=LOOPBACK)], policy=rules).run("go")
        found = result.reason if result.approvals else result.tool_calls[0].status
        assert found == status, path


@pytest.mark.row("D-FETCH")
async def test_it_asks_unless_its_host_is_allowed(site: Any):
    def agent(policy: Any) -> Agent:
        model = ScriptedModel([call("fetch", url=f"{site.base}/page"), text("ok")])
        return Agent(model, tools=[fetch_tool(allowed_networks=LOOPBACK)], policy=policy)

    (asked,) = (await agent(None).run("go")).approvals
    assert (asked.action, asked.target, asked.rules) == (
        "Read a page of the web",
        "127.0.0.1",
        ("fetch(host=127.0.0.1)",),
    )
    assert (await agent(allow("fetch(host=example.com)", "fetch(example.org)")).run("go")).reason == "approval_required"
    for rule in ("fetch(host=127.0.0.1)", "fetch(127.0.0.1)", "WebFetch(domain:127.0.0.1)"):
        allowed = await agent(allow(rule)).run("go")
        assert json.loads(allowed.messages[2].results[0].content)["status"] == 200
    for rule in ("fetch(127.0.0.1)", "fetch(127.*)"):
        denied = await agent(first_of(deny(rule), allow("*"))).run("go")
        assert [one.status for one in denied.tool_calls] == ["denied"]


SPELLINGS = (
    "127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "0x7F000001", "0177.0.0.1", "127.0.0.1.", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021",
)  # fmt: skip


RULES = ("fetch(host=127.0.0.1)", "fetch(host=127.1)", "fetch(host=2130706433)", "WebFetch(domain:127.0.0.1.)")


@pytest.mark.parametrize(
    ("spelled", "rule"), [*((one, RULES[0]) for one in SPELLINGS), *((SPELLINGS[3], rule) for rule in RULES[1:])]
)
async def test_a_rule_on_a_host_holds_for_each_spelling_of_it(spelled: str, rule: str):
    tool = fetch_tool(allowed_networks=["127.0.0.0/8"])
    script = ScriptedModel([call("fetch", url=f"http://{spelled}:1/"), text("Done.")])

    result = await Agent(script, tools=[tool], policy=first_of(deny(rule), allow("fetch"))).run("Go")

    assert [one.status for one in result.tool_calls] == ["denied"]


@pytest.mark.parametrize("host", ["Example.COM", "example.com.", "\uff45xample.com"])
@pytest.mark.parametrize(
    "rule", ["fetch(host=Example.com)", "fetch(host=*.COM)", "WebFetch(domain:EXAMPLE.com)", "fetch(host=example.com.)"]
)
async def test_letters_and_dots_do_not_hide_a_host_from_its_rule(host: str, rule: str):
    script = ScriptedModel([call("fetch", url=f"http://{host}/"), text("Done.")])

    result = await Agent(script, tools=[fetch_tool()], policy=first_of(deny(rule), allow("fetch"))).run("Go")

    assert [one.status for one in result.tool_calls] == ["denied"]


class Rebinding(asyncio.SelectorEventLoop):
    """Resolves a name to another address each time, as a hostile server of names does."""

    def __init__(self, *answers: str) -> None:
        super().__init__()
        self.answers = list(answers)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.answers.pop(0), port))]


@pytest.mark.row("D-FETCH")
def test_a_name_that_leads_elsewhere_after_it_was_judged_is_not_resolved_again(site: Any):
    tool = fetch_tool(allowed_networks=["127.0.0.1/32"])
    url = site.base.replace("127.0.0.1", "rebinding.test") + "/page"
    with asyncio.Runner(loop_factory=lambda: Rebinding("127.0.0.1", "127.0.0.2")) as runner:
        page = runner.run(tool.run({"url": url}, Context()))
        assert runner.get_loop().answers == ["127.0.0.2"]
        with pytest.raises(Rejected):
            runner.run(tool.run({"url": url}, Context()))

    assert "one two" in page["output"]
    assert [path for path, _ in site.asked] == ["/page"]
