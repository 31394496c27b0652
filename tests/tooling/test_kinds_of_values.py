"""Values of a wrong kind, where users put things together: each is refused with a sentence that names the option."""

from collections.abc import Callable
from typing import Any

import pytest

from treadle import Agents, ConfigurationError, Redactor, Sections, WholeHistory, Window, file_tools, resolve_model

HERE = "http://127.0.0.1:1/v1"
ODD = (5, True, float("nan"), b"x", object())


def model(dialect: str = "openai-chat", **options: Any) -> Any:
    return resolve_model(f"{dialect}:m", **{"base_url": HERE, "api_key": "k", **options})


PLACES: dict[str, Callable[[Any], Any]] = {
    "base_url": lambda value: model(base_url=value),
    "api_key": lambda value: model(api_key=value),
    "headers": lambda value: model(headers=value),
    "options": lambda value: model(options=value),
    "Window tokens": lambda value: Window(WholeHistory(), tokens=str(value)),  # type: ignore[arg-type]
    "Sections": Sections,
    "Redactor patterns": lambda value: Redactor(patterns=value),
    "Agents": Agents,
    "root of the file tools": file_tools,
}


@pytest.mark.row("H21")
@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("place", PLACES)
def test_a_value_of_a_wrong_kind_is_refused_with_the_name_of_the_option(place: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=place):
        PLACES[place](value)


@pytest.mark.row("H21")
@pytest.mark.parametrize("dialect", ["anthropic", "gemini", "openai", "azure", "bedrock", "vertex"])
@pytest.mark.parametrize("option", ["api_key", "headers", "options"])
def test_every_dialect_refuses_such_values(dialect: str, option: str) -> None:
    with pytest.raises(ConfigurationError, match=option):
        model(dialect, **{option: 5})


@pytest.mark.row("H21")
@pytest.mark.parametrize("folder", ["\ud800", "a\0b", None, [], {}])
def test_the_root_of_file_tools_is_a_path(folder: Any) -> None:
    with pytest.raises(ConfigurationError, match="root of the file tools"):
        file_tools(folder)
