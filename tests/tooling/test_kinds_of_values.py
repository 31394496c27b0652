"""Values of a wrong kind, where users put things together: each is refused with a sentence that names the option."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from treadle import (
    Agents,
    ConfigurationError,
    Confinement,
    RecordingModel,
    Redactor,
    ReplayModel,
    Sections,
    WholeHistory,
    Window,
    exit_code,
    expire_sessions,
    file_tools,
    find_sandbox,
    list_doubts,
    open_journal,
    resolve_model,
)
from treadle.providers.anthropic import Anthropic
from treadle.providers.openai_chat import OpenAIChat
from treadle.testing import (
    FakeClock,
    FaultyModel,
    FixedRandomness,
    MockProvider,
    Script,
    ScriptedModel,
    Turn,
    text,
)
from treadle.toolsets.wrappers import guarded_by_breaker

HERE = "http://127.0.0.1:1/v1"
ODD = (5, True, float("nan"), b"x", object())


def model(dialect: str = "openai-chat", **options: Any) -> Any:
    return resolve_model(f"{dialect}:m", **{"base_url": HERE, "api_key": "k", **options})


async def _opened(path: Any) -> None:
    async with open_journal(path):
        pass


PLACES: dict[str, Callable[[Any], Any]] = {
    "base_url": lambda value: model(base_url=value),
    "api_key": lambda value: model(api_key=value),
    "headers": lambda value: model(headers=value),
    "options": lambda value: model(options=value),
    "Window tokens": lambda value: Window(WholeHistory(), tokens=str(value)),  # type: ignore[arg-type]
    "Sections": Sections,
    "Redactor patterns": lambda value: Redactor(patterns=value),
    "Agents": Agents,
    "path": lambda value: asyncio.run(_opened(value)),
    "path ": ReplayModel,
    "model": lambda value: RecordingModel(value, "x.jsonl"),
    "model ": lambda value: OpenAIChat(value, base_url=HERE, api_key=None),
    "model must": lambda value: Anthropic(value, api_key="k"),
    "confinement": find_sandbox,
    "writable": lambda value: Confinement(writable=value),
    "reason": exit_code,
    "journal": lambda value: asyncio.run(list_doubts(value)),
    "journal must": lambda value: asyncio.run(expire_sessions(value, before=1.0)),
    "tool": lambda value: guarded_by_breaker(value, clock=FakeClock()),
    "ScriptedModel": ScriptedModel,
    "turn": Script,
    "port": lambda value: MockProvider([text("x")], port=None if value is True else str(value)),
    "headers ": lambda value: Turn(headers=value),
    "delay_ms": lambda value: Turn(delay_ms=str(value)),
    "status": lambda value: Turn(status=None if value is True else str(value)),
    "fail_at": lambda value: FaultyModel(ScriptedModel([text("x")]), fail_at=str(value)),
    "values": FixedRandomness,
    "root of the file tools": file_tools,
}


@pytest.mark.row("H21")
@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("place", PLACES)
def test_a_value_of_a_wrong_kind_is_refused_with_the_name_of_the_option(place: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=place.strip()):
        PLACES[place](value)


@pytest.mark.row("H21")
@pytest.mark.parametrize("dialect", ["anthropic", "gemini", "openai", "azure", "bedrock", "vertex", "cohere"])
@pytest.mark.parametrize("option", ["api_key", "headers", "options"])
def test_every_dialect_refuses_such_values(dialect: str, option: str) -> None:
    with pytest.raises(ConfigurationError, match=option):
        model(dialect, **{option: 5})


@pytest.mark.row("H21")
@pytest.mark.parametrize("folder", ["\ud800", "a\0b", None, [], {}])
def test_the_root_of_file_tools_is_a_path(folder: Any) -> None:
    with pytest.raises(ConfigurationError, match="root of the file tools"):
        file_tools(folder)


@pytest.mark.row("H21")
async def test_a_path_that_no_file_can_have_is_refused(tmp_path: Any) -> None:
    for path in ("\ud800.db", tmp_path / "\ud800.db"):
        with pytest.raises(ConfigurationError, match="path"):
            await _opened(path)
