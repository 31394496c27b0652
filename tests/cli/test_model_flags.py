"""How a model is talked to: flags and keys for calls in its text, errors, and time."""

import json

import pytest

from treadle.testing import MockProvider, Turn

BARE = Turn(text='{"name": "read", "arguments": {"path": "a.txt"}}')


@pytest.mark.parametrize("given", ["flags", "file"])
def test_flags_and_keys_set_how_calls_and_errors_are_read_and_how_long_a_model_may_take(treadle, tmp_path, given):
    (tmp_path / "a.txt").write_text("hello\n")
    keys = {"text_calls": "run", "error_form": "sentence", "first_byte_seconds": 700, "idle_seconds": 90}
    flags = [word for name, value in keys.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    config = tmp_path / "own.toml"
    config.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in keys.items()))
    with MockProvider([BARE, Turn(text="It says hello.")]).in_thread() as mock:
        more = flags if given == "flags" else ["--config", str(config)]
        model = ["-m", "openai-chat:m", "--base-url", mock.base_url]
        ran = treadle("run", "What is in a.txt?", *model, *more, "-C", str(tmp_path), "--json")
    shown = treadle("config", "show", "--config", str(config), "-C", str(tmp_path), "--json")

    assert json.loads(ran.stdout)["text"] == "It says hello."
    assert "hello" in mock.requests[1].body["messages"][-1]["content"]
    values = json.loads(shown.stdout)
    assert {name: keys[name] for name in keys} == {name: _value(values, name) for name in keys}


def _value(shown: object, name: str) -> object:
    found = shown[name] if isinstance(shown, dict) else None
    return found["value"] if isinstance(found, dict) else found
