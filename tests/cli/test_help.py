"""The help of the commands: a usage of one line, and the options in groups."""

import re

import pytest

from treadle.cli.input.commands import COMMANDS
from treadle.cli.input.parser import flags_of
from treadle.cli.main import main


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("run", "treadle run [OPTIONS] [task]"),
        ("sessions", "treadle sessions [OPTIONS] ACTION ..."),
        ("sessions fork", "treadle sessions fork [OPTIONS] [ID]"),
        ("mock", "treadle mock [OPTIONS] SCRIPT"),
    ],
)
def test_the_usage_of_a_command_names_its_arguments_and_stands_for_all_options(capsys, command, usage):
    assert main([*command.split(), "--help"]) == 0

    assert capsys.readouterr().out.splitlines()[0] == f"usage: {usage}"


def test_the_help_of_a_run_has_its_options_in_groups(capsys):
    assert main(["run", "--help-all"]) == 0

    headings = re.findall(r"^([a-z ]+):$", capsys.readouterr().out, re.MULTILINE)
    assert headings == [
        "positional arguments",
        "options",
        "model",
        "tools and permissions",
        "limits",
        "journal and configuration",
        "output",
    ]


def test_the_help_of_the_program_describes_ten_commands_and_names_every_other_under_one_of_them(capsys):
    assert main(["--help"]) == 0

    described, _, named = capsys.readouterr().out.partition("\nmore commands:\n")
    ten = re.findall(r"^    ([a-z]+)(?: |$)", described, re.MULTILINE)
    groups = dict(re.findall(r"^  ([a-z]+): (.+)$", named, re.MULTILINE))
    others = [name for names in groups.values() for name in names.split(", ")]
    assert ten == ["chat", "run", "resume", "sessions", "approvals", "models", "config", "mcp", "worker", "doctor"]
    assert set(groups) < set(ten)
    assert sorted([*ten, *others]) == sorted(COMMANDS)


@pytest.mark.parametrize("command", ["chat", "run"])
def test_the_help_of_a_run_has_its_usual_options_and_help_all_has_every_one(capsys, command):
    assert main([command, "--help"]) == 0
    usual = set(re.findall(r"(?<![\w-])--[a-z-]+", capsys.readouterr().out))
    assert main([command, "--help-all"]) == 0
    every = set(re.findall(r"(?<![\w-])--[a-z-]+", capsys.readouterr().out))

    assert {"--model", "--tools", "--mode", "--continue", "--help-all"} <= usual
    assert not {"--max-tool-calls", "--stream-json", "--approval-seconds"} & usual
    assert usual | {name for name in flags_of(command) if name.startswith("--")} <= every


def test_help_all_of_the_program_describes_every_command(capsys):
    assert main(["--help-all"]) == 0

    assert set(COMMANDS) <= set(re.findall(r"^    ([a-z]+)(?: |$)", capsys.readouterr().out, re.MULTILINE))
