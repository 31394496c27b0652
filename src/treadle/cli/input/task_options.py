"""What a task takes beside its words: model options, instructions, attached files, the form of its answer. Reads nothing."""

import argparse
import json
from typing import Any, Protocol

__all__ = ["add_model_flags", "add_task_flags"]


class _Flags(Protocol):
    """A parser of ours: argparse's, with flags that are remembered."""

    def flag(self, *names: str, **words: Any) -> None: ...


def add_model_flags(parser: _Flags) -> None:
    """Add what the model is told and how it is asked."""
    parser.flag(
        "-o", "--option", dest="model_options", action=_StoreOption, metavar="NAME=VALUE",
        help="a field of each request to the model, such as temperature=0; the value is JSON, or text; repeatable",
    )  # fmt: skip
    parser.flag("--system", metavar="TEXT", help="instructions for the model; @FILE takes them from a file")
    parser.flag(
        "--schema", "--json-schema", dest="schema", metavar="FILE", help="a JSON Schema that the answer must fit"
    )


def add_task_flags(parser: _Flags) -> None:
    """Add what belongs to one task."""
    parser.flag(
        "-a", "--attach", dest="attached", action="append", metavar="FILE",
        help="a file that goes along with the task: text, a picture, a PDF, a sound; repeatable",
    )  # fmt: skip
    parser.flag(
        "-c", "--continue", "--last", dest="is_last", action="store_true", help="continue the session that changed last"
    )


class _StoreOption(argparse.Action):
    """Collects the options of the model in one mapping."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        name, sign, text = values.partition("=")
        if not sign or not name.strip():
            parser.error(f"{option_string} takes NAME=VALUE, such as temperature=0; got {values!r:.80}")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        namespace.model_options = {**vars(namespace).get("model_options", {}), name.strip(): value}
