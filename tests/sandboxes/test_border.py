"""The border of a sandbox: what a command reads, what is private or denied, and what is lifted for it, host by host and folder by folder."""

import asyncio
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from treadle import Agent, deny, shell_tool
from treadle.sandboxes import Bubblewrap, Confinement, Landlock, launcher
from treadle.sandboxes.confinement import lies_in
from treadle.sandboxes.private import is_private_name, private_places
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Command, Decision, ProcessResult
from treadle.tools.protected import SEALED

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
needs_landlock = pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock")
Kind = type[Bubblewrap] | type[Landlock]
KINDS = [pytest.param(Bubblewrap, marks=needs_bwrap), pytest.param(Landlock, marks=needs_landlock)]


def run(
    kind: Kind, folder: Path, script: str, *, lifted: tuple[str, ...] = (), **settings: tuple[str, ...]
) -> ProcessResult:
    folder.mkdir(exist_ok=True)
    sandbox = kind(Confinement(writable=(str(folder),), **settings))  # type: ignore[arg-type]  # of its fields
    return asyncio.run(sandbox.run(Command(arguments=("/bin/bash", "-c", script), cwd=str(folder), lifted=lifted)))


# Files

IN_A_HOME = textwrap.dedent(
    """
    import asyncio, os, sys
    from treadle.sandboxes import Bubblewrap, Confinement, Landlock
    from treadle.tools import Command
    kind, home, folder, script, *opened = sys.argv[1:]
    sandbox = {"Bubblewrap": Bubblewrap, "Landlock": Landlock}[kind](Confinement(writable=(folder,), readable=tuple(one for one in opened if one.startswith("/"))))
    lifted = tuple(one for one in opened if one.startswith("write "))
    done = asyncio.run(sandbox.run(Command(arguments=("/bin/bash", "-c", script), cwd=folder, lifted=lifted)))
    print(done.stdout, end="")
    """
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home outside of the temporary folder, which a command does not see."""
    place = Path("/var/lib" if os.geteuid() == 0 else Path.home()) / f"treadle-test-{os.getpid()}"
    for name in (
        ".ssh/id_rsa",
        ".aws/credentials",
        ".aws/config",
        ".bash_history",
        ".npmrc",
        ".pyenv/bin/tool",
        ".local/state/treadle/j.db",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"canary {name}\n")
    yield place
    shutil.rmtree(place)


def in_home(kind: Kind, home: Path, folder: Path, script: str, *opened: str) -> str:
    folder.mkdir(exist_ok=True)
    words = [sys.executable, "-c", IN_A_HOME, kind.__name__, str(home), str(folder), script, *opened]
    environment = {**os.environ, "HOME": str(home), "AWS_SECRET_ACCESS_KEY": "canary"}
    for name in ("TREADLE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        environment.pop(name, None)
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=100).stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_reads_what_the_person_can_read_but_for_private_places(kind: Kind, home: Path, tmp_path: Path):
    said = in_home(
        kind,
        home,
        tmp_path / "w",
        "cat ~/.pyenv/bin/tool; cat ~/.ssh/* ~/.aws/* ~/.bash_history ~/.npmrc ~/.local/state/treadle/*; env",
    )

    assert [line for line in said.splitlines() if "canary" in line] == ["canary .pyenv/bin/tool"]
    assert f"HOME={home}" in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_private_place_that_the_person_opens_can_be_read_and_not_written(kind: Kind, home: Path, tmp_path: Path):
    script = "cat ~/.aws/config ~/.aws/credentials; echo x > ~/.aws/config; echo x > ~/.pyenv/x"
    said = in_home(kind, home, tmp_path / "w", script, str(home / ".aws/config"))

    assert said == "canary .aws/config\n"
    assert (home / ".aws/config").read_text() == "canary .aws/config\n"
    assert not (home / ".pyenv/x").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_what_links_in_private_folders_lead_to_is_private_too(kind: Kind, home: Path, tmp_path: Path):
    for name, link in (("hosts.yml", ".config/gh/hosts.yml"), ("deep", ".ssh/keys/deep"), ("tool", ".docker/cli/tool")):
        (home / "dotfiles").mkdir(exist_ok=True)
        (home / "dotfiles" / name).write_text(f"canary {name}\n")
        (home / link).parent.mkdir(parents=True, exist_ok=True)
        (home / link).symlink_to(home / "dotfiles" / name)
    (home / "dotfiles/tool").chmod(0o755)
    said = in_home(kind, home, tmp_path / "w", "cat ~/dotfiles/* ~/.config/gh/* ~/.ssh/keys/*")

    assert said == "canary tool\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_private_place_that_does_not_exist_yet_is_not_left_to_a_command(kind: Kind, home: Path, tmp_path: Path):
    for name in ("~/.gnupg", "~/.config/sops/age", "~/.newtool/secrets", "~/.local/state/treadle/x"):
        with pytest.raises(subprocess.CalledProcessError) as error:
            in_home(kind, home, tmp_path / "w", "true", f"write {name}")
        assert "private place" in error.value.stderr
    assert not (home / ".gnupg").exists()

    (home / ".kube").mkdir()
    in_home(kind, home, home, "mkdir .docker; echo x > .docker/config.json; echo x > .netrc; echo x > fine")
    assert [one for one in (".docker", ".netrc") if (home / one).exists()] == []


PRIVATE = """
    .ssh/id_x .config/gh/hosts.yml .local/share/atuin/history.db .ollama/id_ed25519 .ethereum/keystore .near-credentials/x .cloudflared/cert.pem
    .vault_pass .passwd-s3fs .docker/config.json .local/share/uv/credentials .config/doppler/.doppler .weechat/x .newtool/credentials.json
    .newtool/access-token .newtool/auth.json .newtool_history .config/newtool/secrets.yaml .config/newtool/tls.key .local/share/newtool/tokens.json
    .local/state/newtool/history .newpass .config/treadle/history .local/state/treadle/journal.db .local/share/keyrings/x .client_secret
    .vnc/passwd .config/syncthing/key.pem .librewolf/x .modal.toml .config/scw/config.yaml
"""
OPEN = """
    .bashrc .gitconfig .cargo/bin/rustc .cargo/config.toml .rustup/settings.toml .nvm/nvm.sh .pyenv/version .m2/repository/x .config/git/config
    .config/tool/settings.json .local/bin/tool .local/share/tool/key.txt .cache/tool/token .npm/_cacache/x project/secrets.py
"""


def test_private_places_are_found_by_kind_and_the_files_of_tool_chains_are_not_among_them(tmp_path: Path):
    names = f"{PRIVATE} {OPEN}".split()
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".config/loop").symlink_to("loop")
    found = private_places({"HOME": str(tmp_path)})

    assert [one for one in names if lies_in(str(tmp_path / one), found)] == PRIVATE.split()


def test_the_folders_of_all_agents_in_a_home_are_private():
    agents = [
        one for one in SEALED if one.startswith(".") and is_private_name(f"/nowhere/{one}/x", {"HOME": "/nowhere"})
    ]

    assert {".augment", ".claude", ".codex", ".kiro", ".pi", ".vibe", ".zencoder"} <= set(agents)
    assert ".agents" not in agents  # skills, which commands may run


AS_A_USER = textwrap.dedent(
    """
    import asyncio, concurrent.futures.thread, encodings.idna, os, sys
    from treadle.sandboxes import Bubblewrap, Confinement, Landlock
    from treadle.tools import Command
    kind, user, folder, hidden, *scripts = sys.argv[1:]
    if int(user):
        os.setgroups([]), os.setgid(int(user)), os.setuid(int(user))
    for script in scripts:
        sandbox = {"Bubblewrap": Bubblewrap, "Landlock": Landlock}[kind](Confinement(writable=(folder,), hidden=tuple(hidden.split())))
        try:
            done = asyncio.run(sandbox.run(Command(arguments=("/bin/bash", "-c", script), cwd=folder)))
            print(done.stdout, end="")
        except OSError as error:
            print("not run:", error)
    """
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_one_command_shuts_is_opened_by_no_later_one(kind: Kind):
    """What is in it is unknown when the later one starts: files that a rule denies, a repository, private places of the home."""
    user = 300_000 + os.getpid() if os.geteuid() == 0 else 0
    place = Path("/var/lib" if user else Path.home()) / f"treadle-shut-{os.getpid()}"
    for name in (
        "w/d/key.pem",
        "w/sub/.git/hooks/x",
        "w/sub/.git/HEAD",
        "h/.config/gh/hosts.yml",
        "h/.local/share/newtool/token",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("canary\n")
    try:
        if user:
            for one in (place, *place.rglob("*")):
                os.chown(one, user, user)
        opening = "chmod 700 {0}; cat {0}/*/* {0}/*/*/* {0}/*; echo evil > {0}/.git/hooks/x; "
        scripts = [
            "chmod 000 d sub ~/.config ~/.local/share",
            "".join(map(opening.format, ("d", "sub", "~/.config", "~/.local/share"))),
            "chmod 000 .",
            "chmod 700 .; cat d/key.pem",
        ]
        words = [sys.executable, "-c", AS_A_USER, kind.__name__, str(user), str(place / "w"), "**/*.pem", *scripts]
        environment = {**os.environ, "HOME": str(place / "h")}
        for name in ("TREADLE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            environment.pop(name, None)
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, check=True, timeout=100, cwd=place / "w"
        )
        assert "canary" not in done.stdout
        assert (place / "w").stat().st_mode & 0o777 != 0 or "not run" in done.stdout
        if user:
            assert (place / "w/sub/.git/hooks/x").read_text() == "canary\n"
    finally:
        if not user:
            subprocess.run(["chmod", "-R", "u+rwx", place], check=False)
        shutil.rmtree(place)


SWAPPING = """
import ctypes, os, random, sys, time
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None)
while True:
    libc.renameat2(-100, b"x", -100, b"y", 2)
    time.sleep(random.choice([.002, .005, .01]))  # sleep: the time at which it is exchanged is what is tried
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_becomes_a_link_while_a_command_starts_opens_nothing_outside(
    kind: Kind, home: Path, tmp_path: Path
):
    folder, outside = tmp_path / "w", home / "projects"
    for one in (outside, folder / "x"):
        (one / "p/.git").mkdir(parents=True)
        (one / "p/.git/HEAD").touch()
        (one / "q").mkdir()
    (folder / "y").symlink_to(outside)
    swapping = subprocess.Popen([sys.executable, "-c", SWAPPING, str(folder)])
    said = []
    try:
        for _ in range(12):
            with suppress(OSError):  # it was seen
                script = f"echo evil > {outside}/EVIL; echo evil > x/EVIL; echo evil > {outside}/q/EVIL; echo ran"
                said.append(run(kind, folder, script).stdout)
    finally:
        swapping.kill()
        swapping.wait()

    assert sorted(one.name for one in outside.rglob("*")) == [".git", "HEAD", "p", "q"]
    assert "ran\n" in said


FAILS_ONCE = """#!/bin/sh
[ -e {marker} ] && exec {real} "$@"
touch {marker}
echo "bwrap: Can't create file at /run/gone: Read-only file system" >&2
exit 1
"""


@needs_bwrap
def test_a_start_that_fails_since_something_has_gone_meanwhile_is_tried_again(tmp_path: Path):
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(FAILS_ONCE.format(marker=tmp_path / "failed", real=shutil.which("bwrap")))
    program.chmod(0o755)
    folder = tmp_path / "w"
    folder.mkdir()
    words = ["Bubblewrap", str(tmp_path), str(folder), "echo ran >> runs; cat runs"]
    done = subprocess.run(
        [sys.executable, "-c", IN_A_HOME, *words],
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )

    assert (tmp_path / "failed").exists()
    assert done.stdout == "ran\n", done.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", ["prlimit: x", "treadle-launcher: x", "bwrap: x"])
def test_a_command_that_has_run_is_never_said_not_to_have_been_run(kind: Kind, words: str, tmp_path: Path):
    for code in (1, 125):
        done = run(kind, tmp_path / "w", f"echo '{words}' >&2; exit {code}")

        assert (done.exit_code, done.stderr) == (code, f"{words}\n")


@pytest.mark.parametrize("kind", KINDS)
def test_private_places_in_a_writable_folder_are_private(kind: Kind, home: Path):
    said = in_home(
        kind, home, home, "cat ~/.ssh/* ~/.aws/*; echo evil >> ~/.aws/config; echo evil > ~/.ssh/config; ls -A ~"
    )

    assert "canary" not in said
    assert (home / ".aws/config").read_text() == "canary .aws/config\n"
    assert not (home / ".ssh/config").exists()


START_FILES = (
    ".bashrc",
    ".config/autostart/x",
    ".cargo/config.toml",
    ".config/fish/config.fish",
    ".local/lib/python3.9/site-packages/x.pth",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writable", ["..", ".", ".config", ".cargo"])
def test_start_files_of_the_home_stay_wherever_the_writable_folder_lies(kind: Kind, writable: str, home: Path):
    for name in START_FILES:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("mine\n")
    (home / ".config/git").mkdir()
    top = home.parent / f"top-{os.getpid()}"
    top.mkdir()
    try:
        moved = home.rename(top / "home") if writable == ".." else home
        folder = top if writable == ".." else home / writable
        in_home(kind, moved, folder, "; ".join(f"echo evil > ~/{one}" for one in (*START_FILES, ".config/git/config")))
        assert [(moved / one).read_text() for one in START_FILES] == ["mine\n"] * len(START_FILES)
        assert not (moved / ".config/git/config").exists()
    finally:
        if not home.exists():
            (top / "home").rename(home)
        shutil.rmtree(top)


@needs_bwrap
def test_protected_names_deeper_in_the_folder_stay_as_far_as_they_exist(tmp_path: Path):
    names = (
        "pkg/.envrc",
        "pkg/.vscode/tasks.json",
        "pkg/.cargo/config.toml",
        "a/b/.treadle/config.toml",
        "a/x.code-workspace",
    )
    for name in names:
        (tmp_path / "w" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "w" / name).write_text("mine\n")
    done = run(
        Bubblewrap, tmp_path / "w", f"for f in {' '.join(names)}; do echo evil > $f; done; echo x > pkg/new; mv a c"
    )

    assert [(tmp_path / "w" / one).read_text() for one in names] == ["mine\n"] * len(names)
    assert (tmp_path / "w/pkg/new").exists()
    assert [one.kind for one in done.refused] == ["write"] * 5


DENIED = [
    (".env", "cat .env"),
    (".env", "ln .env x; cp .env y; mv .env z; cat x y z ./sub/../.env /proc/self/cwd/.env"),
    (".env", "cat link"),
    (".env", "cat other"),
    (".ENV", "cat .env"),
    ("**/.env", "cat .env sub/.env"),
    ("*.pem", "cat sub/deep/a.pem"),
    ("sub/*", "cat sub/.env sub/deep/a.pem; find sub -type f -exec cat {} +"),
    ("sub/**", "cat sub/deep/a.pem"),
    ("sub", "tar cf - sub | tar xOf -; grep -r canary sub"),
    ("{folder}/sub/.env", "cat sub/.env; python3 -c 'print(open(\"sub/.env\").read())'"),
    ("link", "cat .env link"),
]


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize(("glob", "line"), DENIED)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_rule_denies_reading_is_read_by_no_name(kind: Kind, glob: str, line: str, tmp_path: Path):
    folder = tmp_path / "w"
    for name in (".env", "sub/.env", "sub/deep/a.pem"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("canary\n")
    (folder / "link").symlink_to(".env")
    os.link(folder / ".env", folder / "other")
    (folder / "free").write_text("plain")
    done = run(kind, folder, f"{line}; cat free", hidden=(glob.format(folder=folder),))

    assert done.stdout.endswith("plain")
    assert "canary" not in done.stdout
    assert (folder / ".env").read_text() == (folder / "sub/.env").read_text() == "canary\n"


@needs_bwrap
async def test_the_rules_of_a_policy_cover_the_files_that_they_deny(tmp_path: Path):
    (tmp_path / ".env").write_text("canary")
    (tmp_path / "read.py").write_text("print(open('.e' + 'nv').read())")

    class Boxed:
        policies = (deny("read(path=.env)"),)

        def decide(self, call: object, session: object) -> Decision:
            return Decision(kind="sandbox", rule="boxed")

    model = ScriptedModel([call("shell", command="python3 read.py"), text("Done.")])
    sandbox = Bubblewrap(Confinement(writable=(str(tmp_path),)))
    result = await Agent(model, tools=[shell_tool(tmp_path)], policy=Boxed(), sandbox=sandbox).run("go")

    assert result.completed
    assert "canary" not in result.messages[2].results[0].content
    assert "Permission denied" in result.messages[2].results[0].content


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_outside_is_lifted_alone_and_by_its_own_name(kind: Kind, home: Path, tmp_path: Path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w/link").symlink_to(home)
    script = f"echo x > {home}/cache/new; echo x > {home}/evil; cat {home}/cache/new"
    done = run(kind, tmp_path / "w", script, lifted=(f"write {home}/cache",))

    assert (done.stdout, (home / "cache/new").read_text()) == ("x\n", "x\n")
    assert not (home / "evil").exists()
    with pytest.raises(OSError, match="leads elsewhere"):
        run(kind, tmp_path / "w", "true", lifted=(f"write {tmp_path}/w/link",))
    with pytest.raises(OSError, match="private place"):
        run(kind, tmp_path / "w", "true", lifted=("write /etc/ssl/private/x",)) if Path(
            "/etc/ssl/private"
        ).exists() else _private()


def _private() -> None:
    raise OSError("private place")


# Network


@pytest.fixture
def server() -> Iterator[int]:
    """A server of this machine that says what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            self.wfile.write(f"served {self.path} {self.headers.get('Host')} {body}".rstrip().encode() + b"\n")

        do_POST = do_GET  # noqa: N815 - where the server looks for it

        def log_message(self, *words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found.server_port
        found.shutdown()
        thread.join()


@needs_bwrap
def test_a_host_is_lifted_alone_and_by_its_name(server: int, tmp_path: Path):
    script = f"""
        curl -sS http://localhost:{server}/a; curl -sS -p http://localhost:{server}/tunnel; curl -sS http://127.0.0.1:{server}/b
        curl -sS --noproxy '*' http://localhost:{server}/c; curl -sS http://other.example/; curl -sS https://other.example/; exit 7
    """
    done = run(Bubblewrap, tmp_path / "w", script, lifted=(f"network localhost:{server}",))

    served = [line for line in done.stdout.splitlines() if line.startswith("served")]
    assert served == [f"served /a localhost:{server}", f"served /tunnel localhost:{server}"]
    assert {one.target for one in done.refused if one.kind == "network"} >= {f"127.0.0.1:{server}", "other.example"}


REQUESTS = [
    ("GET http://localhost:{port}/a HTTP/1.1\r\nHost: evil.test\r\n\r\n", "200 /a localhost:{port}"),
    ("GET http://localhost:{port} HTTP/1.0\r\n\r\n", "200 / localhost:{port}"),
    ("GET http://localhost:{port}?q HTTP/1.1\r\nX: y\r\n\r\n", "200 /?q localhost:{port}"),
    ("POST http://localhost:{port}/p HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiGET /second HTTP/1.1\r\nHost: evil.test\r\n\r\n",
     "200 /p localhost:{port} hi"),
    ("GET http://localhost:{port}/a HTTP/1.1\r\n\r\nGET /second HTTP/1.1\r\nHost: evil.test\r\n\r\n", "200 /a localhost:{port}"),
    ("GET http://localhost:{port}/ HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\n\r\n", "400 "),
    ("GET http://localhost:{port}/ HTTP/1.1\r\nHost : evil.test\r\n\r\n", "400 "),
    ("GET http://localhost:{port}/ HTTP/1.1\r\nX: y\nHost: evil.test\r\n\r\n", "400 "),
    ("GET http://localhost:{port}/ HTTP/1.1\r\nX: y\r\n Host: evil.test\r\n\r\n", "400 "),
    ("POST http://localhost:{port}/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nhi", "400 "),
    ("POST http://localhost:{port}/ HTTP/1.1\r\nContent-Length: +2\r\n\r\nhi", "400 "),
    ("POST http://localhost:{port}/ HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "411 "),
    ("GET http://localhost:{other}/ HTTP/1.1\r\n\r\n", "403 "),
    ("GET http://localhost/ HTTP/1.1\r\n\r\n", "403 "),
    ("CONNECT localhost:22 HTTP/1.1\r\n\r\n", "403 "),
    ("CONNECT plain.localhost:80 HTTP/1.1\r\n\r\n", "403 "),
    ("GET http://plain.localhost:443/ HTTP/1.1\r\n\r\n", "403 "),
    ("CONNECT localhost:99999 HTTP/1.1\r\n\r\n", "400 "),
    ("GET http://user@localhost:{port}/ HTTP/1.1\r\n\r\n", "400 "),
]  # fmt: skip
"""Requests to the proxy, and what is answered: the status, and what the server was asked."""
ASKING = """
import json, os, socket, sys
for request in json.loads(sys.argv[1]):
    host, _, port = os.environ["http_proxy"].removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as one:
        one.sendall(request.encode())
        answer = b"".join(iter(lambda: one.recv(4096), b"")).decode()
    status, body = answer.split(" ")[1], answer.partition("\\r\\n\\r\\n")[2]
    print(status, body.removeprefix("served ").strip("\\n") if status == "200" else "")
"""


@needs_bwrap
def test_the_proxy_passes_on_one_request_to_the_host_and_port_that_were_lifted(server: int, tmp_path: Path):
    requests = json.dumps([one.format(port=server, other=server + 1) for one, _ in REQUESTS])
    line = f"python3 -c {shlex.quote(ASKING)} {shlex.quote(requests)}"
    done = run(Bubblewrap, tmp_path / "w", line, lifted=(f"network localhost:{server}", "network plain.localhost"))

    assert done.stdout.splitlines() == [answer.format(port=server) for _, answer in REQUESTS]


@needs_bwrap
def test_a_name_of_the_network_does_not_stand_for_this_machine(server: int, tmp_path: Path):
    lifted = (f"network 127.0.0.1:{server}", f"network *.localtest:{server}")
    done = run(
        Bubblewrap,
        tmp_path / "w",
        f"curl -sS http://127.0.0.1:{server}/ip; curl -sS http://x.localtest:{server}/",
        lifted=lifted,
    )

    assert [line for line in done.stdout.splitlines() if line.startswith("served")] == [
        f"served /ip 127.0.0.1:{server}"
    ]


@needs_bwrap
def test_hosts_are_not_lifted_for_a_process_in_the_background(tmp_path: Path):
    sandbox = Bubblewrap(Confinement(writable=(str(tmp_path),)))
    with pytest.raises(OSError, match="single hosts"):
        sandbox.detached(Command(arguments=("true",), lifted=("network example.com",)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_network_is_lifted_by_a_star(kind: Kind, server: int, tmp_path: Path):
    line = f"curl -sS http://127.0.0.1:{server}/all"
    assert run(kind, tmp_path / "w", line).exit_code != 0
    assert run(kind, tmp_path / "w", line, lifted=("network *",)).stdout.startswith("served /all")


WAYS = {
    "absolute": lambda one, home: one.bind(str(home / "s")),
    "renamed": lambda one, home: (one.bind(str(home / "t")), (home / "t").rename(home / "s")),
    "moved": lambda one, home: (one.bind(str(home / ".ssh/t")), (home / ".ssh/t").rename(home / "s")),
    "linked": lambda one, home: (one.bind(str(home / ".aws/t")), os.link(home / ".aws/t", home / "s")),
    "relative": lambda one, home: one.bind(os.path.relpath(home / "s")),
    "two lines": lambda one, home: (one.bind(str(home / "a\nb")), (home / "s").symlink_to("a\nb")),
}
SOCKETS = """
import os, socket, sys
other, own = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
own.bind("/tmp/own")
print("has its own", flush=True)
other.connect(sys.argv[1])
print("connected")
"""


@needs_bwrap
@pytest.mark.parametrize("way", WAYS)
def test_a_socket_in_the_file_system_on_which_a_program_answers_is_reached_by_no_name(
    way: str, home: Path, tmp_path: Path
):
    with socket.socket(socket.AF_UNIX) as one:
        WAYS[way](one, home)
        one.listen()
        done = run(Bubblewrap, tmp_path / "w", f"python3 -c {shlex.quote(SOCKETS)} {home}/s")

    assert done.stdout == ("has its own\n" if way in ("absolute", "renamed") else "")
    assert done.exit_code != 0
