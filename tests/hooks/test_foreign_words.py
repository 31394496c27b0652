"""The tables of `docs/hooks.md` say what the code does."""

from pathlib import Path

from treadle.resolve.command_hooks import EVENTS, FIELDS, MODES, TOOLS, UNUSED_EVENTS

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text()


def test_the_page_has_every_name():
    for theirs, moment in EVENTS.items():
        assert f"| `{theirs}` | `{moment.value}` |" in PAGE
    for ours, theirs in MODES.items():
        assert f"| `{ours}` | `{theirs}` |" in PAGE
    for ours, theirs in TOOLS.items():
        line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{ours}` | `{theirs}`"))
        assert all(f"`{one}` is `{other}`" in line for one, other in FIELDS.get(ours, {}).items())
    assert all(f"`{event}`" in PAGE for event in UNUSED_EVENTS)
