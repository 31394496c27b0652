"""Dialog: one question about a call on the screen, from its keys to its answer. Records nothing."""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from rich.cells import cell_len

from treadle import ConfigurationError
from treadle.cli.output.text import one_line, one_record, shown_name
from treadle.cli.terminal.drawing import Drawing
from treadle.cli.terminal.faces import Answer, Choice, Option, Question, Scope, choices_of, is_plan, kept_by

__all__ = ["Dialog", "Picker", "Secret"]

_QUIET_SECONDS = 0.6
"""After so long without a key, what a person types answers the question, and is not the end of another sentence."""

_LISTED = 12
"""Things that are listed at once, to choose from."""
_ABOUT_EDITS = "  Shift+Tab yes, and run the next edits of this folder unasked (accept-edits)"
_SIGN = ", "
"""Between two rules."""


class Desk(Protocol):
    """Where the question stands: see `Screen`."""

    drawing: Drawing

    @property
    def room(self) -> int:
        """How many lines a question may take, so that its call stays in sight."""
        ...

    def fill(self, text: str) -> None:
        """Put a text into the input line, in place of what is there."""
        ...

    def put(self, drawn: str) -> None: ...

    def refresh(self) -> None: ...


class Dialog:
    """A question that waits. Its future `answer` has the answer; None where the person interrupts.

    Args:
        waits: Whether the person was typing when it came up: keys count only after a pause then.
    """

    def __init__(self, question: Question, screen: Desk, *, waits: bool) -> None:
        self.question = question
        self.answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._screen = screen
        self._step: Literal["choose", "rule", "arguments", "reason"] = "choose"
        self._waits = waits
        self._since = asyncio.get_running_loop().time()
        self._at: int | None = None  # the choice that the arrows have gone to
        self._fault = ""
        self._covers = ""
        self._scope: Scope = "always"
        self._looking: asyncio.Task[None] | None = None
        self._is_above = False  # whether the call is in the scrollback, since it is too long to stay with its question

    # --- what it shows

    def opening(self) -> str:
        """Return the call for the scrollback, where there is no room for it next to its answers; else nothing."""
        lines = f"{self._panel()}{self._whole()}".count("\n")
        if self._is_above or lines < self._screen.room:
            return ""
        self._is_above = True
        return f"\n{self._panel()}"

    def drawn(self) -> str:
        """Return the call with the choices, or with what is being entered; in a small terminal a short form of them."""
        if opening := self.opening():  # the terminal has become smaller, or the answers longer
            asyncio.get_running_loop().call_soon(self._screen.put, opening)  # not while the screen is being drawn
        whole = self._whole()
        if not self._is_above:
            gap = "\n" * (self._panel().count("\n") + whole.count("\n") + 1 < self._screen.room)
            return f"{self._panel()}{gap}{whole}"
        if whole.count("\n") >= self._screen.room:
            return self._short()
        return self._head() + whole  # its head in the scrollback may be out of sight

    def _head(self) -> str:
        """Return what the call is, in one line."""
        one, drawing = self.question.approval, self._screen.drawing
        agents = f"{' > '.join(map(shown_name, one.path))}: " if one.path else ""
        target = f": {one.target}" if one.target and one.preview is not None and one.preview.kind != "command" else ""
        action = "Carry out this plan?" if is_plan(self.question) else one.action or one.tool
        title = one_line(f"{agents}{action}{target}", max(drawing.width - 16, 20))
        count = f"{self.question.number} of {self.question.total}" if self.question.total > 1 else ""
        return drawing.panel(title, end=count, style="yellow")

    def _panel(self) -> str:
        """Return the call: what it would do, and why a person is asked."""
        one, drawing = self.question.approval, self._screen.drawing
        why = (
            ""
            if is_plan(self.question)
            else one.reason or (f"Rule: {one.rule}." if one.rule and not self._is_edit else "")
        )
        reason = drawing.lines([f"  {one_line(why, 2000)}"], style="yellow") if why else ""
        call = drawing.question(one)
        parts = (reason, call) if self._is_above else (call, reason)  # the call stands next to its question
        return "".join([self._head(), *parts])

    def _whole(self) -> str:
        drawing = self._screen.drawing
        lines = []
        match self._step:
            case "choose":
                lines.append(self._listed())
                lines.append(drawing.lines([_ABOUT_EDITS], style="dim") if self._is_edit else "")
            case "rule":
                where = "in this folder" if self._scope == "always" else "in all your folders"
                says = f"Calls that match are allowed {where} from now on. Enter saves the rule, Esc goes back."
                lines += [drawing.lines([says], style="bold"), drawing.lines([self._covers or " "], style="cyan")]
            case "arguments":
                what = (
                    "Edit the plan. Enter accepts it"
                    if is_plan(self.question)
                    else "Edit the arguments (JSON). Enter runs the call"
                )
                says = f"{what}, Ctrl+J inserts a line break, Esc goes back."
                lines.append(drawing.lines([says], style="bold"))
            case "reason":
                lines.append(
                    drawing.lines(
                        ["Why not? The model reads your reason. Enter denies the call, Esc goes back."], style="bold"
                    )
                )
        return self._with_fault("".join(lines))

    def _short(self) -> str:
        drawing = self._screen.drawing
        match self._step:
            case "choose":
                keys = "".join(key.upper() if key == self._default else key for key in self._keys)
                line = f"Allow {self._tool(max(drawing.width - 7, 10))}? [{keys}?]"
            case "rule":
                line = f"Enter saves. {self._covers}"
            case "arguments":
                line = "Enter runs, Esc back"
            case "reason":
                line = "Why? Enter denies"
        return self._with_fault(drawing.lines([line], style="bold"))

    def _with_fault(self, drawn: str) -> str:
        fault = self._screen.drawing.lines([self._fault], style="red") if self._fault else ""
        return (drawn + fault).rstrip("\n")

    def _listed(self) -> str:
        drawing = self._screen.drawing
        at = self._place()
        rules = one_line(_SIGN.join(self.question.rules), 120)
        listed = [
            drawing.choice(f"{number + 1} {one.key}", one.says.format(rules=rules), is_chosen=number == at)
            for number, one in enumerate(self._listed_choices)
        ]
        aside = "  ·  ".join(f"{one.key} {one.says}" for one in choices_of(self.question) if one.is_aside)
        return "".join([*listed, drawing.lines([f"  {aside}"], style="dim")])

    def _place(self) -> int:
        """Return the choice that Enter takes."""
        return [one.key for one in self._listed_choices].index(self._default) if self._at is None else self._at

    def _tool(self, width: int) -> str:
        return one_line(self.question.approval.tool, width)

    @property
    def sign(self) -> str:
        """What comes before the input."""
        return {
            "choose": "? ",
            "rule": "rule> ",
            "arguments": "plan> " if is_plan(self.question) else "json> ",
            "reason": "reason> ",
        }[self._step]

    @property
    def _is_edit(self) -> bool:
        return self.question.approval.risk == "write_local"

    @property
    def is_choosing(self) -> bool:
        """Whether a single key answers."""
        return self._step == "choose"

    @property
    def _default(self) -> str:
        return "n" if self.question.destroys else "y"

    @property
    def _listed_choices(self) -> list[Choice]:
        return [one for one in choices_of(self.question) if not one.is_aside]

    @property
    def _keys(self) -> list[str]:
        return [one.key for one in choices_of(self.question)]

    # --- what the person does

    def choose(self, key: str) -> None:
        """Take a key: a choice, or an empty text for Enter, which means the default."""
        now, before = asyncio.get_running_loop().time(), self._since
        if self._waits and now - before < _QUIET_SECONDS:
            self._since = now
            self._fault = "You were typing, and your text is kept. Press one of the keys listed here to answer."
            return
        self._waits = False
        self._fault = ""
        match self._meant(key):
            case "y":
                self._give(Answer(answer="allow"))
            case "n":
                self._give(Answer(answer="deny"))
            case "a" if self.question.rules:
                self._give(Answer(answer="allow", rules=self.question.rules, scope="session"))
            case "p" | "m" | "x" as which if kept_by(self.question, which)[0]:
                self._begin_rule(*kept_by(self.question, which))
            case "e":
                given = self.question.approval.arguments
                whole = json.dumps(given, indent=2, ensure_ascii=False)
                self._begin("arguments", str(given["plan"]) if is_plan(self.question) else whole)
            case "r":
                self._begin("reason", "")
            case "v":
                one = self.question.approval
                self._screen.put(self._screen.drawing.entire(one.tool, one.arguments))
            case "?":
                self._screen.put(self._listed())
            case _:
                self._fault = "Press one of " + ", ".join(self._keys) + "."

    def change_mode(self) -> None:
        """Answer by the mode that runs such calls unasked, where there is one."""
        if self._is_edit:
            self._give(Answer(answer="allow", mode="accept-edits"))
        else:
            self._fault = "No mode on Shift+Tab is an answer to this call: press one of the keys listed here."

    def _meant(self, key: str) -> str:
        """Return the letter of a choice: of a number, or of Enter."""
        choices = self._listed_choices
        if not key:
            return choices[self._place()].key
        is_number = key.isdecimal() and 1 <= int(key) <= len(choices)
        return choices[int(key) - 1].key if is_number else key.lower()

    def move(self, by: int) -> None:
        """Go to another choice with an arrow."""
        if self._step == "choose":
            self._at = (self._place() + by) % len(self._listed_choices)
            self._waits = False

    def accept(self, text: str) -> None:
        """Take what was entered."""
        match self._step:
            case "rule":
                self._give_rules(_parted(text))
            case "arguments":
                self._give_arguments(text)
            case "reason":
                self._give(Answer(answer="deny", reason=text.strip()))
            case _:
                self.choose("")

    def typed(self, text: str) -> None:
        """Say what the rule would cover as it is written now."""
        if self._step == "rule":
            self._look(text)

    def back(self) -> None:
        """Go back to the choices; from there, end without an answer."""
        self._fault = ""
        if self._step == "choose":
            self.interrupt()
        else:
            self._begin("choose", "")

    def interrupt(self) -> None:
        """End without an answer."""
        if not self.answer.done():
            self.answer.set_result(None)

    # ---

    def _begin(self, step: Literal["choose", "rule", "arguments", "reason"], text: str) -> None:
        self._step, self._fault = step, ""
        self._screen.fill(text)

    def _begin_rule(self, rules: tuple[str, ...], scope: Scope) -> None:
        self._scope = scope
        self._begin("rule", _SIGN.join(rules))
        self._look(_SIGN.join(rules))

    def _give(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def _give_rules(self, rules: tuple[str, ...]) -> None:
        async def check() -> None:
            try:
                await self.question.covers(rules)
            except ConfigurationError as exc:
                self._fault = one_record(str(exc))
                self._screen.refresh()
            else:
                self._give(Answer(answer="allow", rules=rules, scope=self._scope))

        self._looking = asyncio.ensure_future(check())

    def _give_arguments(self, text: str) -> None:
        if is_plan(self.question):
            is_same = text == self.question.approval.arguments["plan"]
            self._give(Answer(answer="allow", arguments=None if is_same else {"plan": text}))
            return
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError) as exc:
            self._fault = f"This is not valid JSON: {one_line(str(exc))}"
            return
        if not isinstance(value, dict):
            self._fault = "The arguments must be one JSON object."
            return
        is_same = value == self.question.approval.arguments
        self._give(Answer(answer="allow", arguments=None if is_same else value))

    def _look(self, text: str) -> None:
        async def look() -> None:
            try:
                self._covers = await self.question.covers(_parted(text))
            except ConfigurationError as exc:
                self._covers = one_line(str(exc), 300)
            self._screen.refresh()

        self._looking = asyncio.ensure_future(look())


class _Line:
    """A question that a whole line answers: no single key and no mode does."""

    is_choosing = False
    """Whether a single key answers."""

    def choose(self, key: str) -> None:
        """Take a key."""

    def change_mode(self) -> None:
        """Answer by a mode."""

    def move(self, by: int) -> None:
        """Go to another choice with an arrow."""

    def typed(self, text: str) -> None:
        """Take in what stands in the line now."""


class Picker(_Line):
    """Several things of which one is chosen, with arrows, a number, or by typing a part of its name. `answer` is its place."""

    def __init__(self, title: str, options: Sequence[Option], screen: Desk) -> None:
        self.answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._title = title
        self._options = options
        self._screen = screen
        self._found = list(range(len(options)))
        self._at = 0

    sign = "> "

    def drawn(self) -> str:
        """Return the title, and as many options as there is room for, around the chosen one."""
        drawing, room = self._screen.drawing, max(min(self._screen.room - 2, _LISTED), 1)
        first = max(0, min(self._at - room // 2, len(self._found) - room))
        shown = self._found[first : first + room]
        width = max((cell_len(self._options[one].label) for one in shown), default=0)
        lines = [
            drawing.option(
                self._options[one],
                number=one + 1,
                digits=len(str(len(self._options))),
                width=width,
                is_chosen=place == self._at,
            )
            for place, one in enumerate(shown, first)
        ]
        left = len(self._found) - len(shown)
        if not self._found:
            hint = "Nothing has this in its name."
        else:
            hint = f"{left} more · " * bool(left) + "Enter chooses · Esc leaves" + " · type to find one" * bool(left)
        says = self._options[self._found[self._at]].says if self._found and not drawing.has_room_beside(width) else ""
        tail = drawing.lines([f"  {one}" for one in (says, hint) if one], style="dim")
        head = drawing.panel(self._title)
        return (head + "".join(lines) + tail).rstrip("\n")

    def move(self, by: int) -> None:
        """Go to another option with an arrow."""
        self._at = (self._at + by) % max(len(self._found), 1)

    def typed(self, text: str) -> None:
        """Show the options that have all these letters, in their order; a number chooses one of few."""
        if text.isdecimal() and len(self._options) < 10 and 1 <= int(text) <= len(self._options):
            self._give(int(text) - 1)
        pattern = re.compile(".*?".join(map(re.escape, text.casefold().replace(" ", ""))))
        found = [at for at, one in enumerate(self._options) if pattern.search(f"{one.label} {one.says}".casefold())]
        # Names that have the letters together come first: `demo` means demo, and not "DeepSeek, from platform...".
        self._found = sorted(found, key=lambda at: text.casefold() not in self._options[at].label.casefold())
        self._at = 0

    def accept(self, text: str) -> None:
        """Take the option that the arrows have gone to."""
        if self._found:
            self._give(self._found[self._at])

    def back(self) -> None:
        """End without a choice."""
        self._give(None)

    interrupt = back

    def _give(self, place: int | None) -> None:
        if not self.answer.done():
            self.answer.set_result(place)


class Secret(_Line):
    """A secret that a person enters. Its future `answer` has it; None where they leave without one."""

    def __init__(self, title: str, screen: Desk) -> None:
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._title = title
        self._screen = screen

    sign = "key> "

    def drawn(self) -> str:
        """Return what is asked for. The input line shows a star for each character."""
        return self._screen.drawing.panel(self._title).rstrip("\n")

    def accept(self, text: str) -> None:
        """Take what was entered."""
        if not self.answer.done():
            self.answer.set_result(text.strip() or None)

    def back(self) -> None:
        """End without it."""
        self.accept("")

    interrupt = back


def _parted(text: str) -> tuple[str, ...]:
    """Return the rules that a person has written, with commas between them; a comma within brackets belongs to its rule."""
    return tuple(rule for one in re.split(r",(?![^(]*\))", text) if (rule := one.strip()))
