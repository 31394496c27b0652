"""What the configuration of a strange folder can do: lower limits and add denials; never lift anything."""

import inspect
import os
from typing import Any

import pytest

from treadle import Agent, Budget
from treadle.budgets import Guards

CLEARED = [name for name in Budget.__struct_fields__ if getattr(Budget(), name) is not None]


GUARDS = [name for name in Guards.__struct_fields__ if isinstance(getattr(Guards(), name), int)]


def project(treadle: Any, text: str) -> None:
    (treadle.folder / ".treadle").mkdir(exist_ok=True)
    (treadle.folder / ".treadle" / "config.toml").write_text(text)


@pytest.mark.row("H20")
@pytest.mark.parametrize("value", ['"none"', "999999999"])
def test_no_limit_and_no_guard_is_lifted_by_a_project(treadle, value):
    budget = "\n".join(f"{name} = {value}" for name in CLEARED)
    guards = "\n".join(f"{name} = {value}" for name in GUARDS)
    project(treadle, f"[budget]\n{budget}\n[guards]\n{guards}\n[profiles.qa.budget]\n{budget}\n")

    for flags in ([], ["--profile", "qa"]):
        ran = treadle("config", "show", *flags, code=0)
        shown = treadle.json("config", "show", "--json", *flags, code=0)
        for name in CLEARED:
            assert shown[name] == {"value": getattr(Budget(), name), "origin": "default"}
            assert f"asks for {name}" in ran.stderr
        for name in GUARDS:
            assert shown[f"guards.{name}"] == {"value": getattr(Guards(), name), "origin": "default"}


@pytest.mark.row("H20")
def test_a_project_lowers_limits_and_guards(treadle):
    project(
        treadle,
        "[budget]\nmax_tool_calls = 7\nmax_total_cost = 0.5\n[guards]\nrepeats = 2\n[profiles.qa.budget]\nmax_model_turns = 4\n",
    )

    shown = treadle.json("config", "show", "--json", "--profile", "qa", code=0)

    assert [shown[name]["value"] for name in ("max_tool_calls", "max_model_turns", "guards.repeats")] == [7, 4, 2]
    assert float(shown["max_total_cost"]["value"]) == 0.5


@pytest.mark.row("H20")
def test_a_project_s_profile_lifts_neither_the_person_s_profile_nor_their_budget(treadle):
    treadle.home.mkdir()
    (treadle.home / "config.toml").write_text(
        "[budget]\nmax_tool_calls = 20\n[profiles.qa.budget]\nmax_model_turns = 5\n"
    )
    project(treadle, "[profiles.qa.budget]\nmax_model_turns = 40\nmax_tool_calls = 100\nmax_input_tokens = 9\n")

    shown = treadle.json("config", "show", "--json", "--profile", "qa", code=0)

    limits = [shown[name]["value"] for name in ("max_model_turns", "max_tool_calls", "max_input_tokens")]
    assert limits == [5, 20, 9]


@pytest.mark.row("H20")
def test_a_run_in_a_strange_folder_keeps_its_guards_and_says_so(treadle):
    project(treadle, "[guards]\nrepeats = 999\n[budget]\nmax_model_turns = 'none'\n")
    same = {"calls": [{"name": "list", "arguments": {}}]}
    model = treadle.script("s.json", [same] * 12)

    ran = treadle("run", "-m", model, "x", code=13)

    assert "note: .treadle/config.toml asks for guards.repeats = 999" in ran.stderr
    assert "max_model_turns = none" in ran.stderr


@pytest.mark.row("H20")
def test_a_resumed_run_is_not_lifted_by_a_project_s_profile(treadle):
    same = {"calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}
    model = treadle.script("s.json", [same, {"text": "x"}, same, {"text": "y"}])
    treadle("run", "-m", model, "--session", "s", "--max-tool-calls", "1", "x", code=10)
    project(treadle, "[profiles.qa.budget]\nmax_tool_calls = 400\n")

    treadle("resume", "s", "--profile", "qa", "-m", model)
    rows = treadle.json("budgets", "s", "--json", code=0)["budgets"]

    assert [row["limit"] for row in rows if row["name"] == "max_tool_calls"] == [1]


@pytest.mark.row("H20")
def test_a_project_s_profile_does_not_override_what_the_person_wants_at_a_limit(treadle):
    treadle.home.mkdir()
    (treadle.home / "config.toml").write_text('on_limit = "report"\n')
    project(treadle, 'on_limit = "summarize"\n[profiles.qa]\non_limit = "summarize"\n')

    shown = treadle.json("config", "show", "--json", "--profile", "qa", code=0)["on_limit"]
    assert shown == {"value": "report", "origin": str(treadle.home / "config.toml")}

    (treadle.home / "config.toml").write_text('[profiles.qa]\non_limit = "report"\n')
    shown = treadle.json("config", "show", "--json", "--profile", "qa", code=0)["on_limit"]
    assert shown == {"value": "report", "origin": "profile qa"}

    (treadle.home / "config.toml").write_text("")
    project(treadle, '[profiles.qa]\non_limit = "report"\n')
    shown = treadle.json("config", "show", "--json", "--profile", "qa", code=0)["on_limit"]
    assert (shown["value"], shown["origin"].endswith(".treadle/config.toml")) == ("report", True)


@pytest.mark.row("H20")
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_configuration_that_is_no_plain_file_is_refused_and_never_waited_for(treadle, kind):
    folder = treadle.folder / ".treadle"
    folder.mkdir()
    place = folder / "config.toml"
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "device":
            place.symlink_to("/dev/zero")
        case _:
            place.mkdir()

    assert "config.toml" in treadle("config", "show", code=2).stderr


@pytest.mark.row("ST11", "H20")
def test_how_long_a_person_may_take_is_set_by_flag_or_file_and_only_shortened_by_a_project(treadle):
    def shown(*flags):
        value = treadle.json("config", "show", "--json", *flags, code=0)["approval_seconds"]
        return value["value"], value["origin"]

    default = inspect.signature(Agent.__init__).parameters["approval_seconds"].default
    assert shown() == (default, "default")
    project(treadle, "approval_seconds = 9999999\n")
    assert shown() == (default, "default")
    assert "asks for approval_seconds = 9999999" in treadle("config", "show", code=0).stderr
    project(treadle, "approval_seconds = 60\n")
    assert shown() == (60, ".treadle/config.toml")
    treadle.home.mkdir(exist_ok=True)
    (treadle.home / "config.toml").write_text("approval_seconds = 30.5\n")
    assert shown()[0] == 30.5
    assert "asks for approval_seconds" in treadle("config", "show", code=0).stderr
    assert shown("--approval-seconds", "90") == (90, "flag")


@pytest.mark.parametrize("value", ["0", "-1", "true", '"1"', "3162240001", "nan"])
def test_a_time_to_answer_that_is_none_is_refused_with_its_line(treadle, value):
    treadle.home.mkdir(exist_ok=True)
    (treadle.home / "config.toml").write_text(f"# mine\napproval_seconds = {value}\n")
    assert "line 2: 'approval_seconds' must be a number of seconds" in treadle("config", "show", code=2).stderr


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1e3", "99999999999"])
def test_a_time_to_answer_on_the_command_line_that_is_none_is_refused(treadle, value):
    assert "--approval-seconds" in treadle("config", "show", f"--approval-seconds={value}", code=2).stderr
