"""What the tests of the file tools share: a context that nothing cancels, and a way to call a tool as the runtime does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from treadle.errors import Rejected
from treadle.tools import ToolOutput
from treadle.toolsets.files import file_tools, writing_tools


class Context:
    """The part of a ToolContext that these tools use."""

    def __init__(self, cancelled: bool | Callable[[], bool] = False, facts: Any = None) -> None:
        self._cancelled = cancelled
        self.subjects: dict[str, tuple[str, ...]] = {}  # nobody has decided on the call
        self.facts: Any = {} if facts is None else facts

    @property
    def cancelled(self) -> bool:
        return self._cancelled() if callable(self._cancelled) else self._cancelled


class Toolbox:
    """The file tools over one folder, each argument and result held to its schema. It remembers facts, as a session does."""

    def __init__(self, root: Path) -> None:
        self.tools = {tool.name: tool for tool in (*file_tools(root), *writing_tools(root))}
        self.facts: dict[str, Any] = {}

    def __call__(self, name: str, *, ctx: Any = None, **arguments: Any) -> Any:
        tool = self.tools[name]
        jsonschema_rs.validate(tool.parameters, arguments)
        if tool.validate is not None:
            tool.validate(arguments)
        result = tool.run(arguments, ctx or Context(facts=self.facts))
        if isinstance(result, ToolOutput):
            for fact, value in (result.facts or {}).items():
                self.facts.setdefault(fact, {}).update(value)
            result = result.data
        jsonschema_rs.validate(tool.output_schema, result)
        return result

    def refusal(self, name: str, **arguments: Any) -> Rejected:
        with pytest.raises(Rejected) as refused:
            self(name, **arguments)
        jsonschema_rs.validate(self.tools[name].error_schema, refused.value.body)
        return refused.value


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The workspace; its neighbours in `tmp_path` are outside."""
    folder = tmp_path / "W"
    folder.mkdir()
    return folder


@pytest.fixture
def box(root: Path) -> Toolbox:
    return Toolbox(root)


@pytest.fixture
def make_box() -> type[Toolbox]:
    return Toolbox


@pytest.fixture
def put(root: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file below the root, its folders made."""

    def write(path: str, content: str | bytes = "") -> Path:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return write


@pytest.fixture
def context() -> type[Context]:
    return Context
