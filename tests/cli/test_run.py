"""One task on the command line: what comes out where, and with which exit code."""

import json
import os
import pty
import re
import shlex
import subprocess

import pytest

from treadle.testing import MockProvider, Turn, text


@pytest.mark.row("X04")
def test_the_answer_alone_goes_to_standard_output_and_progress_to_standard_error(treadle):
    model = treadle.script(
        "s.json",
        [{"text": "I look.", "calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}, {"text": "Two files."}],
    )

    ran = treadle("run", "-m", model, "Which files?", code=0)

    assert ran.stdout == "Two files.\n"
    lines = ran.stderr.splitlines()
    assert re.fullmatch(r"session: s_\w{16}", lines[0])
    assert lines[1:] == [
        "I look.",
        "[runs] Read a.txt",
        "[done] Read a.txt: one error",
    ]


def test_quiet_says_nothing_and_verbose_tells_the_decisions(treadle):
    model = treadle.script("s.json", [{"calls": [{"name": "list", "arguments": {}}]}, {"text": "Done."}])

    quiet = treadle("run", "-m", model, "x", "-q", code=0)
    verbose = treadle("run", "-m", model, "x", "-v", code=0)

    assert (quiet.stdout, quiet.stderr) == ("Done.\n", "")
    assert "[decision] allow List . (default for read)" in verbose.stderr


@pytest.mark.row("B01", "X04")
def test_json_is_one_object_with_the_report_of_the_limit(treadle, greps):
    ran = treadle(
        "run", "--json", "--max-model-turns", "2", "--on-limit", "report", *treadle.served(greps), "x", code=10
    )

    report = json.loads(ran.stdout)
    assert {key: report[key] for key in ("status", "reason", "completed", "next_safe_action")} == {
        "status": "stopped",
        "reason": "step_limit_reached",
        "completed": False,
        "next_safe_action": "Ask the user whether to continue with a larger budget.",
    }
    assert (report["budget"], report["used"], report["limit"]) == ("max_model_turns", 2, 2)
    assert len(ran.stdout.splitlines()) == 1
    assert len(greps.requests) == 2


@pytest.mark.row("G01", "G02")
def test_a_single_turn_runs_one_round_of_calls_and_nothing_of_a_second(treadle):
    calls = [{"name": "list", "arguments": {}}]
    model = treadle.script("s.json", [{"calls": calls}, {"text": "Two files."}])
    second = treadle.script("t.json", [{"calls": calls}, {"calls": calls}, {"calls": calls}, {"text": "Never."}])

    assert treadle("run", "--single-turn", "-m", model, "Look", code=0).stdout == "Two files.\n"
    report = json.loads(treadle("run", "--single-turn", "--json", "-m", second, "Look", code=1).stdout)
    assert (report["reason"], report["completed"]) == ("no_final_answer_or_tool_call", False)
    assert [call["status"] for call in report["tool_calls"]].count("ok") == 1


@pytest.mark.row("X04")
def test_stream_json_is_every_event_as_a_line_and_the_report_last(treadle):
    model = treadle.script("s.json", [{"calls": [{"name": "list", "arguments": {}}]}, {"text": "Done."}])

    ran = treadle("run", "--stream-json", "-m", model, "x", code=0)

    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    types = [line["type"] for line in lines]
    assert types[0] == "run.started"
    assert types[-2:] == ["run.finished", "report"]
    assert {"model.delta", "tool.started", "tool.finished"} <= set(types)
    assert lines[-1]["text"] == "Done."
    assert lines[-1]["session_id"] == lines[0]["session_id"]
    common = {"session_id", "run_id", "step", "call_id", "seq", "at", "version", "parent"}
    assert all(common <= line.keys() for line in lines[:-1])
    assert {line["seq"] for line in lines if line["type"] == "model.delta"} == {0}


@pytest.mark.row("K04", "F04")
def test_a_person_is_told_in_the_services_words_why_a_call_was_refused(treadle):
    turns = [{"calls": [{"name": "read", "arguments": {"path": "b.txz"}}]}, {"text": "It does not exist."}]

    ran = treadle("run", "-m", treadle.script("s.json", turns), "x", code=0)

    assert "[failed] Read b.txz: rejected: File not found: b.txz" in ran.stderr


def test_what_to_do_next_can_be_run_as_it_is_written(treadle, greps):
    flags = ["--journal", "my journal.db", "--tools", "grep,read", "-C", ".", *treadle.served(greps)]

    ran = treadle("run", "--max-tool-calls", "1", *flags, "Search", code=10)

    session = re.search(r"session: (\S+)", ran.stderr)[1]
    then = ran.stderr.splitlines()[-1]
    address = treadle.served(greps)[-1]
    assert then == (
        f"  then: treadle resume {session} --max-tool-calls 2 --journal '{treadle.folder}/my journal.db' "
        f"--base-url {address} --tools grep,read -C {treadle.folder}"
    )
    treadle(*shlex.split(then)[2:], code=10)


@pytest.mark.row("H18")
@pytest.mark.parametrize(
    ("budget", "limit"), [("--max-tool-calls", "0"), ("--max-model-turns", "1"), ("--max-input-tokens", "1")]
)
def test_the_command_after_a_limit_goes_on_when_it_is_pasted(treadle, budget, limit):
    turns = [
        {"calls": [{"name": "grep", "arguments": {"pattern": "error"}}], "usage": {"input_tokens": 3}},
        {"text": "Found."},
    ]
    flags = ["--on-limit", "report", "-m", treadle.script("s.json", turns)]

    ran = treadle("run", budget, limit, *flags, "Search", code=10)
    *_, said, then = ran.stderr.splitlines()
    done = treadle(*shlex.split(then)[2:], "--json")

    assert said.endswith("Increase the limit to continue.")
    assert "user" not in said
    assert json.loads(done.stdout)["used"] != 0
    assert re.search(rf"{budget} \d+ ", then + " ")


@pytest.mark.row("H18")
def test_the_command_after_a_deadline_names_a_later_one(treadle, greps):
    ran = treadle("run", "--deadline", "2001-09-09", *treadle.served(greps), "Search", code=10)

    then = ran.stderr.splitlines()[-1]
    assert "has passed. Give a later deadline to continue." in ran.stderr
    assert "--max-wall-time-seconds" not in then
    treadle(*shlex.split(then)[2:], "--max-tool-calls", "2", code=10)
    assert len(greps.requests) == 3


@pytest.mark.row("L11")
def test_a_new_task_has_a_fresh_budget_and_a_stopped_one_goes_on_with_a_larger(treadle, greps):
    served = treadle.served(greps)
    first = treadle.json("run", "--json", "--max-tool-calls", "3", "--session", "s1", *served, "Search", code=10)
    second = treadle.json("run", "--json", "--max-tool-calls", "3", "--session", "s1", *served, "Again", code=10)
    before = len(greps.requests)
    third = treadle.json("resume", "s1", "--json", "--max-tool-calls", "6", "--base-url", greps.base_url, code=10)

    assert [len(one["tool_calls"]) for one in (first, second, third)] == [3, 3, 6]
    assert (third["used"], third["limit"]) == (6, 6)
    assert [request.body.get("tool_choice", "auto") for request in greps.requests[before:]] == ["auto"] * 3 + ["none"]


@pytest.mark.row("L19")
def test_done_and_out_of_room_differ_in_report_exit_code_and_words(treadle):
    calls = [{"calls": [{"name": "read", "arguments": {"path": f"{name}.txt"}}]} for name in "abc"]
    model = treadle.script("s.json", [*calls, {"text": "All read."}])

    roomy = treadle("run", "--max-model-turns", "50", "-m", model, "Read", code=0)
    tight = treadle("run", "--max-model-turns", "2", "--on-limit", "report", "-m", model, "Read", code=10)

    assert roomy.stdout == "All read.\n"
    assert "treadle: stopped (step_limit_reached)" in tight.stderr
    assert "--max-model-turns 4\n" in tight.stderr
    assert "stopped" not in roomy.stderr


@pytest.mark.row("L20")
def test_a_profile_sets_the_budget_and_is_in_the_report(treadle, greps):
    treadle.home.mkdir()
    (treadle.home / "config.toml").write_text(
        'on_limit = "report"\n[profiles.qa.budget]\nmax_model_turns = 2\n[profiles.research.budget]\nmax_model_turns = 4\n'
    )

    qa = treadle.json("run", "--json", "--profile", "qa", *treadle.served(greps), "x", code=10)
    research = treadle.json("run", "--json", "--profile", "research", *treadle.served(greps), "x", code=10)

    assert [(one["profile"], one["limit"], one["steps"]) for one in (qa, research)] == [
        ("qa", 2, 2),
        ("research", 4, 4),
    ]


def test_a_person_reads_what_a_tool_raised_without_its_traceback_and_the_model_only_its_class(treadle):
    tool = 'from treadle import tool\n\n@tool(effect="read", retries=0)\ndef count() -> int:\n    """Count."""\n    raise KeyError("orders")\n'
    (treadle.folder / "shop.py").write_text(tool)
    (treadle.folder / "s.json").write_text(json.dumps([{"calls": [{"name": "count"}]}, {"text": "No."}]))

    ran = treadle("run", "-m", "script:s.json", "--tools", "shop.py", "Count", code=0)
    shown = treadle.json("sessions", "show", "--last", "--json", code=0)

    assert "[failed] count: The tool failed: KeyError: 'orders'" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "KeyError: 'orders'" in treadle("sessions", "explain", "--last", code=0).stdout
    assert "KeyError (its message is in the log)" in shown["messages"][2]["parts"][0]["content"]


def test_an_answer_that_follows_failed_calls_comes_with_a_warning(treadle):
    calls = [{"name": "grep", "arguments": {"pattern": "x", "max_matches": "many"}}, {"name": "nope", "arguments": {}}]
    model = treadle.script("s.json", [{"calls": calls}, {"text": "Nothing."}])

    ran = treadle("run", "-m", model, "x", code=0)

    assert "warning: the answer follows 2 failed calls (grep: invalid_arguments, nope: unknown_tool)" in ran.stderr
    assert '[failed] Search "x"  max_matches: "many": invalid_arguments:' in ran.stderr


@pytest.mark.row("AT-TERMINAL")
def test_control_characters_of_model_and_tools_are_shown_not_obeyed(treadle):
    (treadle.folder / "evil.txt").write_bytes(b"error \x1b]0;owned\x07 \xc2\x9b31m\n")
    model = treadle.script(
        "s.json",
        [
            {"calls": [{"name": "read", "arguments": {"path": "evil.txt"}}]},
            {"text": "red \u001b[31m back\b over\rx \u202e"},
        ],
    )

    ran = treadle("run", "-m", model, "x", code=0)

    assert ran.stdout == "red \\x1b[31m back\\x08 over\\rx \\u202e\n"
    assert not set(ran.stderr) & {"\x1b", "\x07", "\x9b", "\r"}


@pytest.mark.parametrize("flags", [[], ["--json"], ["--stream-json"]], ids=["text", "json", "stream-json"])
def test_half_a_surrogate_pair_breaks_no_output(treadle, flags):
    half = json.dumps({"choices": [{"index": 0, "delta": {"content": "half \ud800 pair"}, "finish_reason": "stop"}]})
    answer = Turn(body=f"data: {half}\n\ndata: [DONE]\n\n".encode())
    with MockProvider([answer]).in_thread() as provider:
        ran = treadle("run", *treadle.served(provider), "--max-retries-per-model-call", "0", *flags, "x")

    assert "unexpected" not in ran.stderr
    assert ran.returncode in (0, 1)


# --- the task --------------------------------------------------------------------------------------------------------


_PIPED = "Review\n\n# Standard input\n\nline one\n"


@pytest.mark.parametrize(
    ("words", "stdin", "asked"),
    [
        (["run", "-"], "What is up?", "What is up?"),
        (["run"], "What is up?", "What is up?"),
        (["run", "Review"], "line one\n", _PIPED),
        (["run", "Alone"], "", "Alone"),
        ([], "What is up?", "What is up?"),
        (["Review"], "line one\n", _PIPED),
        (["Review it now"], "", "Review it now"),
        (["-q", "Review"], "line one\n", _PIPED),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_task_comes_from_the_command_line_from_a_pipe_or_from_both_also_without_the_word_run(
    treadle, words, stdin, asked
):
    with MockProvider(["Yes."]).in_thread() as provider:
        model = {"TREADLE_MODEL": "openai-chat:mock", "OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k"}
        ran = treadle(*words, stdin=stdin, code=0, **model)

    assert ran.stdout == "Yes.\n"
    assert provider.requests[0].body["messages"][-1]["content"] == asked


@pytest.mark.parametrize(("word", "says"), [("rnu", "Did you mean run?"), ("ls", "`treadle sessions` lists")])
def test_a_misspelt_command_is_no_task_also_where_something_is_piped_in(treadle, word, says):
    assert says in treadle(word, stdin="line one\n", code=2).stderr


def test_a_task_of_ten_megabytes_is_carried_out(treadle):
    with MockProvider(["Long."]).in_thread() as provider:
        ran = treadle("run", *treadle.served(provider), "-", stdin="word " * 2_000_000, code=0)

    assert ran.stdout == "Long.\n"
    assert len(provider.requests[0].body["messages"][-1]["content"]) == 10_000_000


def test_more_than_can_be_taken_gets_one_sentence(treadle):
    ran = treadle("run", "-m", "demo", "-", stdin=b"x" * (33 * 1024 * 1024), code=2)

    assert "larger than 32 MB" in ran.stderr


def test_bytes_that_are_no_text_crash_nothing(treadle):
    model = treadle.script("s.json", [{"text": "Read."}])

    piped = treadle("run", "-m", model, "-", stdin=b"\xff\xfe\x00task", code=0)
    given = subprocess.run(
        [*map(os.fsencode, treadle.command("run", "-m", model)), b"caf\xe9 \xff"],
        cwd=treadle.folder, env=treadle.environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
    )  # fmt: skip

    assert piped.stdout == "Read.\n"
    assert (given.returncode, given.stdout) == (0, b"Read.\n"), given.stderr


# --- streams ---------------------------------------------------------------------------------------------------------


def test_text_is_shown_at_a_terminal_before_the_answer_is_whole(treadle):
    with MockProvider(
        [Turn(text="First and the rest.", pieces=3, gate="g", hold_after_pieces=2)]
    ).in_thread() as provider:
        ours, theirs = pty.openpty()
        process = treadle.start("run", "-q", *treadle.served(provider), "x", stdout=theirs)
        os.close(theirs)
        shown = os.read(ours, 1000)
        provider.gate("g").open()
        while b"rest." not in shown:
            shown += os.read(ours, 1000)
        code = process.wait(60)
        process.stderr.close()
        os.close(ours)

    assert code == 0
    assert shown.replace(b"\r\n", b"\n").startswith(b"First and the rest.")
    assert shown.count(b"First") == 1


def test_a_response_that_broke_off_is_not_part_of_the_answer(treadle):
    turns = [Turn(text="Wrong beginning of an answer", cut="mid-text"), text("Right.")]
    with MockProvider(turns).in_thread() as provider:
        ran = treadle("run", *treadle.served(provider), "x", code=0)

    assert ran.stdout == "Right.\n"
    assert "[retry]" in ran.stderr


def test_what_a_tool_or_its_child_prints_does_not_reach_standard_output(treadle):
    (treadle.folder / "loud.py").write_text(
        "import os, subprocess\nfrom treadle import Tool\nprint('at import')\n"
        "def _run(arguments, ctx):\n    print('from python')\n    subprocess.run(['echo', 'from a child'])\n"
        "    os.write(1, b'from C\\n')\n    return 'ok'\n"
        "loud = Tool(name='loud', description='.', parameters={'type': 'object'}, effect='read', run=_run)\n"
    )
    model = treadle.script("s.json", [{"calls": [{"name": "loud", "arguments": {}}]}, {"text": "Done."}])

    ran = treadle("run", "--json", "-m", model, "--tools", "loud.py", "x", code=0)

    assert json.loads(ran.stdout)["text"] == "Done."
    for words in ("at import", "from python", "from a child", "from C"):
        assert words in ran.stderr


def test_a_reader_who_goes_away_is_no_error(treadle):
    model = treadle.script("s.json", [{"calls": [{"name": "list", "arguments": {}}]}, {"text": "Done."}])

    process = treadle.start("run", "--stream-json", "-m", model, "x")
    process.stdout.close()
    _, error = process.communicate(timeout=60)

    assert process.returncode == 0
    assert b"Traceback" not in error
    assert b"BrokenPipe" not in error
    assert treadle.json("sessions", "--json")[0]["state"] == "completed"


@pytest.mark.parametrize(
    ("closed", "answer"),
    [("<&- >&- 2>&-", ""), (">&-", ""), ("<&-", "Done.\n"), ("2>&-", "Done.\n"), ("<&- 2>&-", "Done.\n")],
)
def test_closed_standard_streams_crash_nothing_and_mix_nothing(treadle, closed, answer):
    model = treadle.script("s.json", [{"text": "I look.", "calls": [{"name": "list"}]}, {"text": "Done."}])
    line = " ".join([*treadle.command("run", "-m", model, "x"), closed])

    ran = subprocess.run(
        line, shell=True, cwd=treadle.folder, env=treadle.environment, timeout=60, stdout=subprocess.PIPE, text=True
    )

    assert (ran.returncode, ran.stdout) == (0, answer)


@pytest.mark.row("X04")
def test_a_refusal_and_a_repeated_call_have_codes_of_their_own(treadle):
    again = treadle.script("r.json", [{"calls": [{"name": "list", "arguments": {}}]}])
    refusing = treadle.script("n.json", [{"refusal": "I will not."}])

    assert treadle.json("run", "--json", "-m", again, "x", code=13)["reason"] == "repeated_tool_call"
    assert treadle.json("run", "--json", "-m", refusing, "x", code=14)["reason"] == "refused"


def test_the_demo_shows_searches_a_mended_call_and_the_limit(treadle):
    ran = treadle("demo", code=0)

    assert "not a language model" in ran.stdout
    assert "invalid_arguments" in ran.stderr
    assert "max_matches: 200" in ran.stderr
    assert "stopped (budget_exceeded)" in ran.stderr


def test_the_demo_works_on_the_folder_that_is_named(treadle):
    ran = treadle("demo", "-C", ".", "--json")

    assert "a.txt" in json.loads(ran.stdout)["text"]
