"""Profiles: a whole set-up by one name: which of its values hold, where they come from, and what a project's profile may do."""

import json

import pytest
from jsonschema import Draft202012Validator
from tests.cli.conftest import PAYING

from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.running import confinement_of

WHOLE = """
model = "demo"
mode = "ask"
deny = ["read(path=b.txt)"]

[budget]
max_tool_calls = 50

[model_options]
temperature = 0.5
seed = 7

[profiles.review]
model = "script:review.json"
model_options = { temperature = 0.0, stop = ["END"] }
system = "Answer in one word."
tools = ["read"]
mode = "plan"
sandbox = "on"
on_approval = "deny"
ask = ["read(path=c.txt)"]
deny = ["read(path=a.txt)"]
allow = ["pay"]

[profiles.review.budget]
max_tool_calls = 5

[profiles.review.price]
input = 1
output = 2

[profiles.review.facts]
window = 1000
"""


def own(treadle, text):
    treadle.home.mkdir(exist_ok=True)
    (treadle.home / "config.toml").write_text(text)


def project(treadle, text):
    (treadle.folder / ".treadle").mkdir(exist_ok=True)
    (treadle.folder / ".treadle" / "config.toml").write_text(text)


def shown(treadle, *flags, **variables):
    return treadle.json("config", "show", "--origin", "--json", *flags, code=0, **variables)


@pytest.mark.row("E-PROFILES")
def test_a_profile_is_a_whole_set_up_and_every_value_says_that_it_comes_from_it(treadle):
    own(treadle, WHOLE)

    plain, review = shown(treadle), shown(treadle, "--profile", "review")

    assert [plain[name]["value"] for name in ("model", "mode", "sandbox", "system")] == ["demo", "ask", "auto", None]
    named = ("model", "system", "tools", "mode", "sandbox", "on_approval", "max_tool_calls", "price", "facts")
    assert {name: review[name]["origin"] for name in named} == dict.fromkeys(named, "profile review")
    assert [review[name]["value"] for name in ("model", "mode", "sandbox", "tools", "max_tool_calls")] == [
        "script:review.json",
        "plan",
        "on",
        ["read"],
        5,
    ]
    assert review["deny"]["value"] == ["read(path=a.txt)", "read(path=b.txt)"]
    rules = treadle.json("permissions", "--json", "--profile", "review", code=0)
    assert ("deny", "read(path=a.txt)", "user", "profile review") in [tuple(one.values())[:4] for one in rules]


@pytest.mark.row("E-PROFILES")
def test_flags_override_a_profile_and_a_profile_overrides_the_environment(treadle):
    own(treadle, WHOLE)

    found = shown(treadle, "--profile", "review", "--mode", "ask", "--sandbox", "off", TREADLE_MODEL="script:other")

    assert found["model"] == {"value": "script:review.json", "origin": "profile review"}
    assert [found[name] for name in ("mode", "sandbox")] == [
        {"value": "ask", "origin": "flag"},
        {"value": "off", "origin": "flag"},
    ]


@pytest.mark.row("E-PROFILES")
def test_a_run_uses_the_model_the_tools_the_instructions_the_rules_and_the_mode_of_its_profile(treadle):
    own(treadle, WHOLE.replace('sandbox = "on"\n', ""))
    calls = [{"name": "read", "arguments": {"path": path}} for path in ("a.txt", "b.txt", "c.txt")]
    treadle.script("review.json", [{"calls": calls}, {"text": "No."}])

    report = treadle.json("run", "--json", "--profile", "review", "Look", code=0)
    session = treadle.json("sessions", "show", "--last", "--json", code=0)

    assert [one["status"] for one in report["tool_calls"]] == ["denied", "denied", "denied"]
    assert report["text"] == "No."
    lines = treadle("sessions", "export", "--last", "--exact", code=0).stdout.splitlines()
    started = next(json.loads(line) for line in lines if '"run.started"' in line)
    assert started["origin"]["system"] == "Answer in one word."
    assert started["origin"]["profile"] == "review"
    assert session["run_status"] == "completed"


@pytest.mark.row("E-PROFILES")
def test_options_of_the_model_come_from_file_profile_and_flag_each_field_by_itself(treadle):
    from treadle.testing import MockProvider

    own(treadle, WHOLE.replace('model = "script:review.json"\n', "").replace('mode = "plan"\nsandbox = "on"\n', ""))
    names = ("temperature", "seed", "stop")
    with MockProvider(["Yes."] * 3).in_thread() as provider:
        for flags in ([], ["--profile", "review"], ["--profile", "review", "-o", "temperature=1"]):
            treadle("run", "--bare", *treadle.served(provider), *flags, "Is it so?", code=0)
        sent = [[request.body.get(name) for name in names] for request in provider.requests]

    assert sent == [[0.5, 7, None], [0.0, 7, ["END"]], [1, 7, ["END"]]]
    found = shown(treadle, "--profile", "review", "-o", "seed=8")
    assert found["model_options.temperature"] == {"value": 0.0, "origin": "profile review"}
    assert found["model_options.seed"] == {"value": 8, "origin": "flag"}


@pytest.mark.row("E-PROFILES")
@pytest.mark.parametrize("value", ["2026-11-23", "nan", "[inf]"])
def test_an_option_of_the_model_that_json_cannot_say_is_refused_with_its_line(treadle, value):
    own(treadle, f"[profiles.a.model_options]\nseed = 1\nstop = {value}\n")

    said = treadle("config", "show", code=2).stderr

    assert "config.toml, line 3: 'stop' must be a value that JSON has" in said


@pytest.mark.row("E-PROFILES")
def test_a_session_that_is_resumed_keeps_the_options_of_its_profile(treadle):
    from treadle.testing import MockProvider, call

    (treadle.folder / "paying.py").write_text(PAYING)
    own(treadle, '[profiles.cool]\nmodel_options = { temperature = 0.25 }\ntools = ["paying.py"]\n')
    (treadle.home / "paying.py").write_text(PAYING)
    with MockProvider([call("pay", amount=4), "Paid."]).in_thread() as provider:
        treadle("run", "--bare", *treadle.served(provider), "--tools", "paying.py", "--profile", "cool", "Pay", code=11)
        treadle("approve", "--last", code=0)
        treadle("resume", "--last", code=0)
        sent = [request.body.get("temperature") for request in provider.requests]

    assert sent == [0.25, 0.25]


@pytest.mark.row("E-PROFILES")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("treadle run --profile ", ["deep", "quick", "review"]),
        ("treadle run --profile re", ["review"]),
        ("treadle chat -m demo --profile q", ["quick"]),
        ("treadle run -C elsewhere --profile ", ["quick", "review", "there"]),
        ("treadle run --config more.toml --profile ", ["deep", "extra", "quick", "review"]),
    ],
)
def test_names_of_profiles_are_completed(treadle, line, expected):
    own(treadle, "[profiles.review]\n[profiles.quick]\n")
    project(treadle, "[profiles.deep.budget]\nmax_tool_calls = 2\n")
    (treadle.folder / "elsewhere" / ".treadle").mkdir(parents=True)
    (treadle.folder / "elsewhere" / ".treadle" / "config.toml").write_text("[profiles.there]\n")
    (treadle.folder / "more.toml").write_text("[profiles.extra]\n")

    assert treadle("completion", "words", "--", line, code=0).stdout.split() == expected


@pytest.mark.row("E-PROFILES")
def test_a_broken_configuration_completes_nothing_and_says_nothing(treadle):
    own(treadle, "[profiles")

    assert treadle("completion", "words", "--", "treadle run --profile ", code=0).stdout == ""


@pytest.mark.row("E-PROFILES")
def test_instructions_of_a_file_beside_the_configuration_reach_the_model(treadle):
    from treadle.testing import MockProvider

    own(treadle, 'system = "@prompts/short.md"\n[profiles.long]\nsystem = "Answer at length."\n')
    (treadle.home / "prompts").mkdir()
    (treadle.home / "prompts" / "short.md").write_text("Answer in one word.")

    with MockProvider(["Yes.", "Yes.", "Yes."]).in_thread() as provider:
        for flags in ([], ["--profile", "long"], ["--profile", "long", "--system", "In verse."]):
            treadle("run", "--bare", *treadle.served(provider), *flags, "Is it so?", code=0)
        said = [request.body["messages"][0]["content"] for request in provider.requests]

    assert said == ["Answer in one word.", "Answer at length.", "In verse."]


NOT_FOR_PROJECTS = {
    "model": "'demo'",
    "base_url": "'http://127.0.0.1:9'",
    "system": "'Obey me.'",
    "model_options": "{ max_tokens = 1000000 }",
    "tools": "['shell']",
    "allow": "['shell']",
    "price": "{input = 0, output = 0}",
    "facts": "{window = 9}",
}


@pytest.mark.row("E-PROFILES", "H20", "AT-SECRETS-PROJECT")
def test_the_file_of_a_project_and_its_profiles_choose_no_model_no_words_and_no_code(treadle):
    own(treadle, "[profiles.own]\n")
    tables = [("", NOT_FOR_PROJECTS | {"redaction": "{enabled = false}"}), ("[profiles.fast]\n", NOT_FOR_PROJECTS)]
    for line, (table, keys) in enumerate(tables, 1):
        for key, value in keys.items():
            project(treadle, f"{table}{key} = {value}\n")
            is_for_trusted = key in ("system", "allow")
            told = treadle(
                "config", "show", "--profile", "fast" if line == 2 else "own", code=0 if is_for_trusted else 2
            )
            if is_for_trusted:
                assert f"config.toml sets {key}, which does not count: the folder is not trusted." in told.stderr
                assert "shell" not in told.stdout
                assert "Obey me." not in told.stdout
            else:
                assert f"config.toml, line {line}: a project's file cannot set {key!r}" in told.stderr


@pytest.mark.row("E-PROFILES")
def test_a_project_s_profile_makes_mode_and_sandbox_stricter_and_never_looser(treadle):
    project(
        treadle, "[profiles.calm]\nmode = 'plan'\nsandbox = 'on'\ndeny = ['read']\n[profiles.wild]\nmode = 'bypass'\n"
    )

    calm = shown(treadle, "--profile", "calm")
    wild = treadle("config", "show", "--json", "--profile", "wild", code=0)

    assert [calm[name]["value"] for name in ("mode", "sandbox", "deny")] == ["plan", "on", ["read"]]
    assert json.loads(wild.stdout)["mode"] == {"value": "ask", "origin": "default"}
    assert "asks for mode = bypass: a project can only set a stricter one than ask" in wild.stderr
    own(treadle, "sandbox = 'on'\nmode = 'plan'\n")
    project(treadle, "sandbox = 'network'\nmode = 'ask'\n")
    held = shown(treadle)
    assert [held[name]["value"] for name in ("mode", "sandbox")] == ["plan", "on"]


@pytest.mark.row("E-PROFILES")
def test_a_trusted_folder_may_instruct_the_model_by_a_file_that_the_trust_covers(treadle):
    project(treadle, "system = '@words.md'\n")
    (treadle.folder / ".treadle" / "words.md").write_text("Answer in one word.")
    assert shown(treadle)["system"]["value"] is None
    treadle("trust", "approve", stdin="y\n", code=0)

    assert shown(treadle)["system"]["value"].endswith(".treadle/words.md")
    project(treadle, "system = '@../a.txt'\n")
    treadle("trust", "approve", stdin="y\n")
    assert "is outside" in treadle("config", "show", code=2).stderr


@pytest.mark.row("E-PROFILES")
def test_a_session_that_names_a_profile_permits_nothing_by_it(treadle):
    own(treadle, "[profiles.free]\nmode = 'bypass'\nallow = ['pay']\n")
    (treadle.folder / "paying.py").write_text(PAYING)
    pay = [{"calls": [{"name": "pay", "arguments": {"amount": 40}}]}, {"text": "It is done."}]
    model = treadle.script("pay.json", pay)
    treadle("run", "-m", model, "--tools", "paying.py", "--session", "s", "Pay", code=11)
    lines = treadle("sessions", "export", "s", "--exact", code=0).stdout
    (treadle.folder / "theirs.jsonl").write_text(lines.replace('"profile":null', '"profile":"free"'))
    assert '"profile":"free"' in (treadle.folder / "theirs.jsonl").read_text()
    again = pay[0] | {"calls": [{"name": "pay", "arguments": {"amount": 99}}]}
    treadle.script("pay.json", [pay[0], again, pay[1]])
    treadle("sessions", "import", "theirs.jsonl", "--journal", "other.db", code=0)
    treadle("sessions", "activate", "s", "--journal", "other.db", code=0)
    treadle("approve", "--last", "--journal", "other.db", code=0)

    treadle("resume", "s", "--journal", "other.db", code=11)

    assert (treadle.folder / "paid.txt").read_text() == "40\n"


@pytest.mark.row("E-PROFILES")
def test_the_schema_knows_every_key_of_a_file_and_of_a_profile(treadle):
    import tomllib

    schema = treadle.json("config", "schema", code=0)

    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(tomllib.loads(WHOLE))
    assert {} not in [*schema["properties"].values()]
    assert not Draft202012Validator(schema).is_valid(tomllib.loads("[profiles.a]\nmodle = 'demo'"))
    assert not Draft202012Validator(schema).is_valid(tomllib.loads("ask = 3"))


def test_a_person_opens_folders_to_confined_commands_and_a_project_does_not(treadle):
    (treadle.folder / "tools").mkdir()
    treadle.home.mkdir(exist_ok=True)
    (treadle.home / "config.toml").write_text(
        f'[sandbox]\nmode = "on"\nread = ["~/tools", "{treadle.folder}/tools"]\nhide = ["*.pem"]\n'
    )

    settings = settings_of(Options(folder=str(treadle.folder)), treadle.environment)

    assert settings.sandbox == "on"
    assert settings.sandbox_read[-1] == f"{treadle.folder}/tools"
    assert confinement_of(settings).readable == settings.sandbox_read
    assert confinement_of(settings).hidden == ("*.pem",)
    project = treadle.folder / ".treadle"
    project.mkdir()
    (project / "config.toml").write_text('[sandbox]\nread = ["~/tools"]\n')
    assert "a project's file cannot set 'read'" in treadle("run", "-m", "demo", "go", code=2).stderr
