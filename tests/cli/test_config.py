"""Settings from flags, environment and files: which one holds, and where it says it comes from."""

import asyncio

import pytest

from treadle import Agent, Budget, open_session
from treadle.testing import ScriptedModel, text

NAMES = Budget.__struct_fields__


def configure(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text)


@pytest.mark.row("B02")
def test_all_ten_budgets_are_taken_from_a_file_under_their_exact_names(treadle):
    configure(treadle.home, "[budget]\n" + "".join(f"{name} = {number}\n" for number, name in enumerate(NAMES, 11)))

    rows = treadle.json("budgets", "--json", code=0)["budgets"]

    assert len(rows) == 10
    assert {row["name"]: float(row["limit"]) for row in rows} == {name: number for number, name in enumerate(NAMES, 11)}
    assert {row["origin"] for row in rows} == {str(treadle.home / "config.toml")}


@pytest.mark.row("B02")
def test_all_ten_budgets_are_flags_under_their_exact_names(treadle):
    flags = [word for number, name in enumerate(NAMES, 11) for word in ("--" + name.replace("_", "-"), str(number))]

    lines = treadle("budgets", *flags, code=0).stdout.splitlines()

    assert [(line.split()[0], line.split()[-1]) for line in lines] == [
        (name, str(number)) for number, name in enumerate(NAMES, 11)
    ]


def test_max_turns_is_another_name_and_none_means_no_limit(treadle):
    rows = treadle.json("budgets", "--json", "--max-turns", "7", "--max-tool-calls", "none", "--max-total-cost", "0.10")

    limits = {row["name"]: row["limit"] for row in rows["budgets"]}
    assert (limits["max_model_turns"], limits["max_tool_calls"], limits["max_total_cost"]) == (7, None, "0.10")


@pytest.mark.row("B02")
def test_the_budgets_of_a_session_show_what_was_used_and_its_own_limits(treadle):
    model = treadle.script("s.json", [{"calls": [{"name": "list", "arguments": {}}]}, {"text": "Done."}])
    treadle("run", "-m", model, "--session", "s1", "--max-tool-calls", "9", "x", code=0)

    lines = [line.split() for line in treadle("budgets", "s1", code=0).stdout.splitlines()]

    assert len(lines) == 10
    assert lines[0] == ["max_model_turns", "2", "/", "50"]
    assert lines[1] == ["max_tool_calls", "1", "/", "9"]
    rows = treadle.json("budgets", "s1", "--json", "--max-model-turns", "3", code=0)["budgets"]
    assert [(row["used"], row["limit"], row["origin"]) for row in rows[:2]] == [(2, 3, "flag"), (1, 9, "session")]


def test_the_limits_of_a_run_that_a_program_began_are_not_made_up(treadle):
    async def run() -> None:
        async with open_session(treadle.home / "journal.db", id="s1") as session:
            await Agent(ScriptedModel([text("Done.")]), budget=Budget(max_model_turns=7)).run("x", session=session)

    asyncio.run(run())

    shown = treadle("budgets", "s1", "--max-tool-calls", "9", code=0)
    rows = treadle.json("budgets", "s1", "--json", code=0)["budgets"]

    assert [line.split() for line in shown.stdout.splitlines()[:2]] == [
        ["max_model_turns", "1", "/", "?"],
        ["max_tool_calls", "0", "/", "9"],
    ]
    assert "the limits of its program's agent" in shown.stderr
    assert (rows[0]["used"], rows[0]["limit"], rows[0]["origin"]) == (1, None, "agent")


def test_a_flag_goes_before_the_named_file_that_before_the_person_s_and_that_before_the_project_s(treadle):
    configure(
        treadle.folder / ".treadle",
        "[budget]\nmax_model_turns = 1\nmax_tool_calls = 1\nmax_input_tokens = 1\nmax_output_tokens = 1\n",
    )
    configure(treadle.home, "[budget]\nmax_model_turns = 2\nmax_tool_calls = 2\nmax_input_tokens = 2\n")
    configure(treadle.folder / "named", "[budget]\nmax_model_turns = 3\nmax_tool_calls = 3\n")

    shown = treadle.json("config", "show", "--json", "--config", "named/config.toml", "--max-model-turns", "4", code=0)

    assert {name: (shown[name]["value"], shown[name]["origin"]) for name in NAMES[:6]} == {
        "max_model_turns": (4, "flag"),
        "max_tool_calls": (3, "named/config.toml"),
        "max_parallel_tool_calls": (16, "default"),
        "max_wall_time_seconds": (3600, "default"),
        "max_input_tokens": (2, str(treadle.home / "config.toml")),
        "max_output_tokens": (1, ".treadle/config.toml"),
    }


@pytest.mark.row("L20")
def test_a_profile_goes_before_the_budget_and_behind_the_flags(treadle):
    configure(
        treadle.home,
        "[budget]\nmax_tool_calls = 1\n[profiles.qa]\non_limit = 'report'\n[profiles.qa.budget]\nmax_tool_calls = 2\n",
    )

    plain, profiled, flagged = (
        treadle.json("config", "show", "--json", *flags, code=0)
        for flags in ([], ["--profile", "qa"], ["--profile", "qa", "--max-tool-calls", "3"])
    )

    assert [one["max_tool_calls"]["value"] for one in (plain, profiled, flagged)] == [1, 2, 3]
    assert [one["on_limit"]["value"] for one in (plain, profiled)] == ["summarize", "report"]
    assert profiled["max_tool_calls"]["origin"] == "profile qa"


def test_the_model_comes_from_the_flag_then_the_variable_then_the_file(treadle):
    configure(treadle.home, "model = 'demo'\n")

    assert treadle.json("config", "show", "--json")["model"]["value"] == "demo"
    shown = treadle.json("config", "show", "--json", TREADLE_MODEL="script:a")["model"]
    assert shown == {"value": "script:a", "origin": "TREADLE_MODEL"}
    assert treadle.json("config", "-m", "script:b", "--json", TREADLE_MODEL="script:a")["model"]["value"] == "script:b"


def test_a_denial_of_a_project_s_file_holds_beside_the_person_s_permission(treadle):
    configure(treadle.folder / ".treadle", "deny = ['read']\n")
    model = treadle.script("s.json", [{"calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}, {"text": "No."}])

    report = treadle.json("run", "--json", "-m", model, "--allow", "read", "x", code=0)

    assert [one["status"] for one in report["tool_calls"]] == ["denied"]


def test_a_limit_of_money_is_kept_exactly_with_the_session_and_holds_when_it_is_resumed(treadle):
    configure(treadle.home, "[price]\ninput = 100000\noutput = 0\n")
    from treadle.testing import MockProvider, call

    with MockProvider([call("list"), "Done."]).in_thread() as provider:
        flags = ["--json", *treadle.served(provider)]
        stopped = treadle.json("run", *flags, "--session", "s1", "--max-total-cost", "0.10", "x", code=10)
        rows = treadle.json("budgets", "s1", "--json", code=0)["budgets"]
        shown = treadle("budgets", "s1", code=0).stdout.splitlines()
        again = treadle.json("resume", "s1", *flags, code=10)
        larger = treadle.json("resume", "s1", *flags, "--max-total-cost", "1000.50", code=0)
        final = treadle.json("budgets", "s1", "--json", code=0)["budgets"]

    (row,) = [row for row in rows if row["name"] == "max_total_cost"]
    assert row == {"name": "max_total_cost", "used": stopped["cost"], "limit": "0.10", "origin": "session"}
    assert shown[6].split() == ["max_total_cost", stopped["cost"], "/", "0.10"]
    assert shown[3].endswith("/ 3600")
    assert [one["budget"] for one in (stopped, again, larger)] == ["max_total_cost", "max_total_cost", None]
    assert [row["limit"] for row in final if row["name"] == "max_total_cost"] == ["1000.50"]


def test_tool_files_named_in_a_file_are_found_beside_it(treadle):
    configure(treadle.home, "tools = ['mine.py', 'grep']\n")
    (treadle.home / "mine.py").write_text(
        "from treadle import Tool\n"
        "t = Tool(name='mine', description='Mine.', parameters={'type': 'object'}, run=print, effect=lambda a: 'read')\n"
    )

    listed = treadle.json("tools", "--json", code=0)

    assert [(one["name"], one["effect"]) for one in listed] == [("mine", "by call"), ("grep", "read")]


def test_the_price_of_the_configuration_holds_for_a_script_too(treadle):
    (treadle.folder / "own.toml").write_text("[price]\ninput = 1000000\noutput = 1000000\n", encoding="utf-8")
    turn = {"text": "Hello.", "usage": {"input_tokens": 3, "output_tokens": 2}}
    flags = ["-m", treadle.script("one.json", [turn]), "--config", "own.toml", "--max-total-cost", "9"]

    report = treadle.json("run", *flags, "--json", "Greet", code=0)

    assert report["cost"] == "5"


def test_a_value_is_set_in_the_persons_own_file_and_all_else_of_it_stays(treadle):
    configure(treadle.home, '# mine\nmode = "ask"  # old\n\n[budget]\nmax_model_turns = 7\n\n[guards]\n')
    for key, value in {
        "mode": "accept-edits", "budget.max_total_cost": "0.5", "model": "demo", "tools": '["read", "grep"]', "profiles.qa.mode": "plan"
    }.items():  # fmt: skip
        treadle("config", "set", key, value, code=0)

    assert (treadle.home / "config.toml").read_text() == (
        '# mine\nmode = "accept-edits"\nmodel = "demo"\ntools = ["read", "grep"]\n\n'
        "[budget]\nmax_model_turns = 7\nmax_total_cost = 0.5\n\n[guards]\n\n"
        '[profiles.qa]\nmode = "plan"\n'
    )
    assert treadle.json("config", "show", "--json", code=0)["max_total_cost"]["value"] == "0.5"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("mode", "brave", "'mode' must be one of"),
        ("modle", "demo", "unknown key 'modle'"),
        ("api_key", "sk-1234567890", "Keys are never in a configuration"),
        ("model", "opnai:gpt-5", "Did you mean"),
        ("budget.max_model_turns", "many", "max_model_turns"),
        ("a b", "1", "is not a key of the configuration"),
        ("allow", '["x"]', "Change the file in an editor"),
    ],
)
def test_a_value_that_the_file_may_not_have_is_refused_and_the_file_stays(treadle, key, value, says):
    before = 'mode = "plan"\nallow = [\n  "deploy",\n]\n'
    configure(treadle.home, before)

    assert says in treadle("config", "set", key, value, code=2).stderr
    assert [one.name for one in treadle.home.iterdir()] == ["config.toml"]
    assert (treadle.home / "config.toml").read_text() == before
