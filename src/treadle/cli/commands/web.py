"""`treadle web`: a page for people, on this machine's own address; and `treadle notify`: tell them what waits there."""

import asyncio
import inspect
import logging
import os
import shlex
import socket
import webbrowser
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from treadle import Agents
from treadle.cli.exits import UsageError, check_installed
from treadle.cli.files import write_whole
from treadle.cli.input.commands import NotifyOptions, WebOptions
from treadle.cli.input.places import user_config
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.sessions import opened, person
from treadle.cli.tool_sources import load_agents
from treadle.web import Access, Notifier, Token, new_token

__all__ = ["notify", "web"]

_HOST = "127.0.0.1"
_LEAVING_SECONDS = 1


async def web(options: WebOptions, terminal: Terminal) -> int:
    """Serve until a signal ends it; or only make a token."""
    file = Path(options.tokens) if options.tokens else user_config(os.environ).parent / "web-tokens.json"
    if options.new_token is not None:
        return _make_token(options, file, terminal)
    check_installed("web", "starlette", "uvicorn", "jinja2", "markdown_it")
    from treadle.web import web as web_app  # noqa: PLC0415 - an extra

    access = Access(tokens=_tokens(file), proxy_header=options.proxy_header or "", hosts=options.hosts)
    settings = settings_of(options)
    agents = await _agents(options, Path(settings.root))
    async with opened(settings.journal) as journal:
        with closing(_listener(options.port)) as listener:
            app = web_app(journal, access=access, agents=agents, read_only=options.is_read_only)
            address = f"http://{_HOST}:{listener.getsockname()[1]}"
            link = f"{address}/enter?key={access.new_link(person(options), role='operate')}"
            terminal.hides_logs = True
            terminal.reveal(link)
            terminal.say("The link works once, within ten minutes. Ctrl+C stops the page.")
            if access.tokens:
                terminal.say(f"People with a token log in at {address}/login")
            if not options.has_no_browser:
                with suppress(webbrowser.Error):
                    await asyncio.to_thread(webbrowser.open, link)
            await _serve(app, listener)
    return 0


async def _serve(app: object, listener: socket.socket) -> None:
    import uvicorn  # noqa: PLC0415 - an extra

    config = uvicorn.Config(
        app,  # type: ignore[arg-type]  # an application of ASGI
        log_level="critical",  # nobody needs to read that a page was still open
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_LEAVING_SECONDS,
        proxy_headers=False,
    )
    await uvicorn.Server(config).serve(sockets=[listener])


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        raise UsageError(
            f"Port {port} cannot be used: {error.strerror or error}. Choose another, or 0 for any that is free."
        ) from error


async def _agents(options: WebOptions, folder: Path) -> Agents | None:
    if not options.agents:
        return None
    made = []
    for make in load_agents(options.agents, folder).values():
        agent = make()
        made.append(await agent if inspect.isawaitable(agent) else agent)
    return Agents(made)


async def notify(options: NotifyOptions, terminal: Terminal) -> int:
    """Tell what there is and what comes, until a signal ends it."""
    webhook = options.webhook or os.environ.get("TREADLE_WEBHOOK_URL", "")
    if options.page is None or not (webhook or options.line):
        raise UsageError("Give --page, the address of the web page, and --webhook URL or --command LINE.")
    try:
        command = shlex.split(options.line or "")
    except ValueError as error:
        raise UsageError(f"--command {options.line!r:.80} cannot be read: {error}.") from error
    async with opened(settings_of(options).journal) as journal:
        notifier = Notifier(
            journal,
            page=options.page,
            webhook="" if command else webhook,
            secret=os.environ.get("TREADLE_WEBHOOK_SECRET", ""),
            command=command,
        )
        _log_to(terminal)
        terminal.say("Notices are sent. Ctrl+C stops it; what comes meanwhile is told when it runs again.")
        await notifier.run()
    return 0


def _log_to(terminal: Terminal) -> None:
    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            terminal.say(record.getMessage())

    log = logging.getLogger("treadle.web.notices")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(Lines())


# --- Tokens: a file of names and hashes, for its owner alone.


def _tokens(file: Path) -> list[Token]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[Token])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"The tokens in {str(file)!r} cannot be read: {error}.") from error


def _make_token(options: WebOptions, file: Path, terminal: Terminal) -> int:
    assert options.new_token is not None
    known = _tokens(file)
    if any(token.name == options.new_token for token in known):
        raise UsageError(f"{options.new_token!r:.80} has a token already. Remove it from {str(file)!r} first.")
    token, secret = new_token(options.new_token, role=options.role, tenants=options.tenants or None)
    content = msgspec.json.format(msgspec.json.encode([*known, token]), indent=2) + b"\n"
    write_whole(file, content, cannot=f"The tokens in {str(file)!r} cannot be written: {{}}.")
    terminal.page(f"{secret}\n")
    terminal.say(
        f"This is the token of {token.name}, role {token.role}. It is shown once; {str(file)!r} keeps its hash."
    )
    return 0
