"""The help of the commands: a usage of one line, and the options in groups."""

import re

import pytest

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
    assert main(["run", "--help"]) == 0

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


def test_the_help_of_the_program_lists_its_commands_under_a_heading(capsys):
    assert main(["--help"]) == 0

    assert "\ncommands:\n  COMMAND\n    chat" in capsys.readouterr().out
