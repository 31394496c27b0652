"""Context: from stored messages to what the model sees. Compilers, and wrappers that stack over them.

The store is never changed, and a call is never parted from its result: all of them work on whole exchanges.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

from treadle.errors import ConfigurationError
from treadle.messages import Message, user_message
from treadle.ports import Compiler, SessionView
from treadle.tools import Tool

__all__ = [
    "CurrentTrace",
    "Injected",
    "Redacted",
    "Sections",
    "WholeHistory",
    "Window",
    "compiler_for",
    "instructions_with_guidance",
]


_parts = attrgetter("parts")


class WholeHistory:
    """Every message as it was stored (`history="all"`). Append-only, so that providers can cache the prefix."""

    def compile(self, session: SessionView) -> Sequence[Message]:
        """Return all messages but empty ones, which providers refuse."""
        return tuple(filter(_parts, session.messages)) if session.state.has_empty_messages else session.messages


class CurrentTrace:
    """The whole conversation, but calls and results of the current run only (`history="current"`)."""

    def compile(self, session: SessionView) -> Sequence[Message]:
        """Return earlier tasks and answers without their traces, then everything of the run under way."""
        run = session.state.run
        begins = run.first_message if run is not None else 0
        before = (message for message in session.messages[:begins] if message.role != "tool" and not message.calls)
        return tuple(message for message in (*before, *session.messages[begins:]) if message.parts)


class Sections:
    """Named sections in a fixed order, such as summary, buffer, messages.

    Example:
        Sections({"summary": lambda session: [user_message(notes)], "messages": WholeHistory().compile},
                 order=("summary", "messages"))

    Raises:
        ConfigurationError: The order names a section that is not there.
    """

    def __init__(
        self,
        sections: Mapping[str, Callable[[SessionView], Sequence[Message]]],
        *,
        order: Sequence[str] = ("summary", "buffer", "messages"),
    ) -> None:
        chosen = [name for name in order if name in sections]
        if unknown := set(sections) - set(order):
            raise ConfigurationError(f"Sections {sorted(unknown)} are not in the order {list(order)}.")
        self._sections = [sections[name] for name in chosen]

    def compile(self, session: SessionView) -> Sequence[Message]:
        """Return the sections' messages, one section after the other."""
        return tuple(message for section in self._sections for message in section(session))


class Window:
    """The last exchanges that fit into so many tokens, whole ones only; the first message, the task, always stays.

    Args:
        tokens: Room for the messages, at four characters a token unless `count` says otherwise.
        count: Returns the tokens of one message.
    """

    def __init__(self, compiler: Compiler, *, tokens: int, count: Callable[[Message], int] | None = None) -> None:
        if tokens < 1:
            raise ConfigurationError(f"Window tokens must be at least 1; got {tokens}.")
        self._compiler = compiler
        self._tokens = tokens
        self._count = count or estimated_tokens

    def compile(self, session: SessionView) -> Sequence[Message]:
        """Return the first message and as many of the last exchanges as fit; the very last one in any case."""
        exchanges = _exchanges(self._compiler.compile(session))
        if not exchanges:
            return ()
        first, rest = exchanges[0], exchanges[1:]
        room = self._tokens - sum(map(self._count, first))
        kept: list[list[Message]] = []
        for exchange in reversed(rest):
            room -= sum(map(self._count, exchange))
            if room < 0 and kept:
                break
            kept.append(exchange)
        return tuple(message for exchange in (first, *reversed(kept)) for message in exchange)


class Injected:
    """Further messages in front of the last user message: what a search found for it, for example.

    Args:
        find: Given the session, returns the text to add, or None.
    """

    def __init__(self, compiler: Compiler, find: Callable[[SessionView], str | None]) -> None:
        self._compiler = compiler
        self._find = find

    def compile(self, session: SessionView) -> Sequence[Message]:
        """Return the messages with the found text in front of the last user message; pairs stay whole."""
        messages = tuple(self._compiler.compile(session))
        text = self._find(session)
        places = [index for index, message in enumerate(messages) if message.role == "user"]
        if not text or not places:
            return messages
        return (*messages[: places[-1]], user_message(text), *messages[places[-1] :])


class Redacted:
    """Every message passed through a function before the model sees it. It may change parts, never roles or ids."""

    def __init__(self, compiler: Compiler, redact: Callable[[Message], Message]) -> None:
        self._compiler = compiler
        self._redact = redact

    def compile(self, session: SessionView) -> Sequence[Message]:
        """Return the redacted messages."""
        return tuple(self._redact(message) for message in self._compiler.compile(session))


def compiler_for(history: str) -> Compiler:
    """Return the compiler by its word in `Agent(history=...)`.

    Raises:
        ConfigurationError: The word is neither `all` nor `current`.
    """
    match history:
        case "all":
            return WholeHistory()
        case "current":
            return CurrentTrace()
        case _:
            raise ConfigurationError(f"history is 'all' or 'current'; got {history!r}.")


def estimated_tokens(message: Message) -> int:
    """Return about how many tokens a message takes: four characters each."""
    told = sum(len(result.content) for result in message.results) + sum(len(call.arguments) for call in message.calls)
    return (len(message.text) + told) // 4 + 1


def _exchanges(messages: Iterable[Message]) -> list[list[Message]]:
    """Cut messages where that parts no call from its result."""
    exchanges: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and exchanges:
            exchanges[-1].append(message)
        else:
            exchanges.append([message])
    return exchanges


def instructions_with_guidance(instructions: str | None, tools: Iterable[Tool]) -> str | None:
    """Return the instructions with the longer advice of each tool behind them, under the tool's name."""
    advice = [f"## {tool.name}\n{tool.guidance}" for tool in tools if tool.guidance]
    parts = [instructions] if instructions else []
    return "\n\n".join(parts + advice) or None
