"""Near: what a person meant by a word that is unknown here: a word that is really near, or ours for that of another program."""

import difflib
from collections.abc import Iterable

__all__ = ["hint_for", "instead_of_command", "instead_of_option"]

_CUTOFF = 0.75
"""Below this, a suggestion is a guess: `--yes` is not `--ask`."""

_NO_QUESTIONS = "--mode bypass runs calls without asking; --allow RULE allows some of them."
_ONE_TASK = '`treadle run "TASK"` carries out one task, prints the answer and ends.'
_KEYS = "Keys come from the vendor's variable, such as OPENAI_API_KEY; `treadle doctor` shows which are set."

_OPTIONS = {
    name: (needed, advice)
    for names, needed, advice in (
        ("-y --yes --yes-always --yolo --full-auto --auto-approve", "--mode", _NO_QUESTIONS),
        ("--dangerously-skip-permissions", "--mode", _NO_QUESTIONS),
        ("--dangerously-bypass-approvals-and-sandbox", "--mode", _NO_QUESTIONS),
        ("--permission-mode --approval-mode --ask-for-approval", "--mode", "Use --mode, such as --mode plan."),
        ("--allowedTools --allowed-tools", "--allow", "Use --allow RULE, once for each rule."),
        ("--disallowedTools --disallowed-tools", "--deny", "Use --deny RULE, once for each rule."),
        ("--output-format --format", "--json", "Use --json, or --stream-json for each event as a line."),
        ("-p --print --prompt --message", "--on-approval", _ONE_TASK),
        (
            "-r --resume",
            "--on-approval",
            "`treadle resume ID` resumes a run; -c gives a new task to the newest session.",
        ),
        ("--system-prompt --append-system-prompt", "--system", "Use --system TEXT, or --system @FILE."),
        ("--max-budget-usd", "--max-total-cost", "Use --max-total-cost USD."),
        ("--cwd --cd --directory", "-C", "Use -C DIR."),
        ("--file -f --image -i --read", "--attach", "Use -a FILE."),
        ("--api-key --openai-api-key --anthropic-api-key", "--model", _KEYS),
        ("--mcp-config", "--tools", "`treadle mcp add` adds a server."),
        ("--debug", "--verbose", "Use -v; TREADLE_DEBUG=1 shows tracebacks and logs."),
    )
    for name in names.split()
}
"""Options of other programs: the option of ours that a command must take for the advice to be true, and the advice."""

_COMMANDS = {
    name: advice
    for names, advice in (
        ("help", "Use `treadle --help`, or `treadle COMMAND --help`."),
        ("version", "Use `treadle --version`."),
        ("ls list history", "`treadle sessions` lists the sessions."),
        ("exec ask prompt", _ONE_TASK),
        ("login auth setup init", _KEYS),
        ("continue", "`treadle chat -c` continues the newest session."),
        ("deny reject", "Use `treadle approve ID --deny`."),
        ("stop kill", "Use `treadle cancel ID`."),
        ("settings configure", "`treadle config show` shows every value and its origin."),
        ("status", "`treadle doctor` checks this machine; `treadle sessions` lists the sessions."),
        ("serve", "Use `treadle mcp serve`, or `treadle acp` for an editor."),
    )
    for name in names.split()
}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that a misspelt one is near to: the same letters in another order, or almost all of them."""
    bare = {one.lstrip("-").casefold(): one for one in known}
    said = word.lstrip("-").casefold()[:100]
    swapped = [one for one in bare if sorted(one) == sorted(said)]
    near = swapped or difflib.get_close_matches(said, list(bare), n=1, cutoff=_CUTOFF)
    return bare[near[0]] if near else None


def hint_for(word: str, known: Iterable[str]) -> str:
    """Return the question what was meant, a blank before it; empty where nothing is near."""
    near = nearest(word, known)
    return f" Did you mean {near}?" if near else ""


def instead_of_option(flag: str, known: Iterable[str]) -> str:
    """Return what an option of another program is here, for a command that takes the known ones; empty where that is unknown."""
    needed, advice = _OPTIONS.get(flag, ("", ""))
    return advice if needed in list(known) else ""


def instead_of_command(word: str, actions: Iterable[str]) -> str:
    """Return what a command of another program is here; an action of `sessions` may be given alone elsewhere."""
    if word in _COMMANDS:
        return _COMMANDS[word]
    return f"Use `treadle sessions {word}`." if word in list(actions) else ""
