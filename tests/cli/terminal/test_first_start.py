"""The first start: which model answers where none is named, how a key is entered, and where the choice is kept."""

import pytest

from person import Person, turn
from treadle.testing import MockProvider, text

KEY = "sk-entered-0123456789abcdef"
NOBODY = {f"{name}_BASE_URL": "http://127.0.0.1:9/v1" for name in ("LLAMACPP", "LMSTUDIO", "OLLAMA", "VLLM")}
"""No server of this machine answers there."""


def test_with_one_key_a_newcomer_has_an_answer_after_the_first_message(person: Person) -> None:
    with MockProvider([text("Hello, newcomer.")]).in_thread() as provider:
        person.start(**NOBODY, OPENAI_API_KEY=KEY, OPENAI_BASE_URL=provider.base_url)
        person.see("openai:gpt-5 answers, since OPENAI_API_KEY is set", person.prompt)
        person.say("Hi")
        person.see("Hello, newcomer.")
        person.leave()
    assert not (person.home / "config.toml").exists()


def test_without_a_key_one_is_entered_unseen_tried_and_kept_for_the_next_start(person: Person) -> None:
    with MockProvider([text("ready"), text("Hello again.")]).in_thread() as provider:
        person.start(**NOBODY, OPENAI_BASE_URL=provider.base_url)
        person.see("Which model shall answer?", "Anthropic", "https://platform.openai.com/api-keys", "demo")
        person.press("2")
        person.see("Your key of OpenAI", "key> ")
        person.press(KEY)
        person.see("*" * len(KEY))
        person.press("enter")
        person.see("The key is stored in", "readable by you alone", "openai:gpt-5 answers.", "/help")
        person.leave()
        assert KEY not in person.raw
        assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"

        person.start(**NOBODY, OPENAI_BASE_URL=provider.base_url)
        person.see(person.prompt, "openai:gpt-5")
        person.say("Hi")
        person.see("Hello again.")
        person.leave()
        assert provider.requests[1].headers["authorization"] == f"Bearer {KEY}"
    assert (person.home / "config.toml").read_text() == 'model = "openai:gpt-5"\n'
    assert (person.home / "keys.json").stat().st_mode & 0o777 == 0o600
    assert KEY not in (person.home / "history").read_text()


def test_a_model_that_does_not_answer_is_said_to_and_another_is_chosen(person: Person) -> None:
    with MockProvider([text("unasked")], api_key="another-key-of-the-server").in_thread() as provider:
        variables = {**NOBODY, "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
        person.start(**variables, ANTHROPIC_BASE_URL=provider.base_url)
        person.see("Anthropic: the key is set", "OpenAI: the key is set")
        person.press("enter")
        person.see("anthropic:claude-sonnet-4-5 did not answer", "Which model shall answer?")
        person.press("demo", "enter")
        person.see("demo answers.", person.prompt)
        person.leave()
    assert (person.home / "config.toml").read_text() == 'model = "demo"\n'


def test_a_person_who_leaves_the_choice_leaves_the_program_and_nothing_is_kept(person: Person) -> None:
    person.start(**NOBODY)
    person.see("Which model shall answer?")
    person.press("esc")
    person.ends(0)
    assert not (person.home / "config.toml").exists()


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_a_file_of_keys_that_others_can_read_is_not_used(person: Person, mode: int) -> None:
    person.home.mkdir(exist_ok=True)
    (person.home / "keys.json").write_text(f'{{"openai": "{KEY}"}}')
    (person.home / "keys.json").chmod(mode)
    said = person.elsewhere("run", "-m", "openai:gpt-5", "Hi", code=2)
    assert "holds keys and can be read by others. Run: chmod 600" in said
    assert KEY not in said


def test_a_new_folder_is_asked_about_once_and_the_mode_that_is_chosen_holds(person: Person) -> None:
    person.knows_folder = False
    person.start("chat", *person.script(turn("Hello.")))
    person.see("You are new in this folder.", "Ask before edits and commands")
    person.press("2")
    person.see("/help lists", "auto")
    person.leave()
    person.start("chat", *person.script(turn("Hello.")))
    person.see("/help lists", "auto", without="You are new")
    person.leave()


@pytest.mark.parametrize("answer", ["1", "2"])
def test_what_a_folder_brings_is_shown_and_counts_only_where_the_person_trusts_it(person: Person, answer: str) -> None:
    person.knows_folder = False
    (person.folder / "AGENTS.md").write_text("Answer in French.\n")
    (person.folder / ".treadle").mkdir()
    (person.folder / ".treadle" / "config.toml").write_text('allow = ["shell(make:*)"]\n')
    (person.folder / ".claude" / "commands").mkdir(parents=True)
    (person.folder / ".claude" / "commands" / "ship.md").write_text("Put it online.\n")
    person.start("chat", *person.script(turn("Salut.")))
    person.see("This folder brings .treadle/config.toml, AGENTS.md, ", "ship.md", "Show what it brings first")
    person.press("4")
    person.see("Answer in French.", 'allow = ["shell(make:*)"]', "Put it online.", "Do you trust it?")
    person.press(answer)
    person.see("/help lists")
    person.say("/permissions")
    seen = person.see("allowed in this session")
    assert ("shell(make:*)" in seen.partition("/permissions")[2]) is (answer == "2")
    person.leave()
    state = person.elsewhere("config", "show", "--json")
    assert ("folder, approved" in state) is (answer == "2")


def test_a_person_who_named_a_mode_is_not_asked_for_it(person: Person) -> None:
    person.knows_folder = False
    person.start("chat", *person.script(turn("Hello.")), "--mode", "plan")
    person.see("/help lists", "plan", without="You are new")
    person.leave()
