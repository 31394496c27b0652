"""What the demo model makes of a task in plain words. A handful of patterns; calls nothing, and knows no result."""

import re
from enum import StrEnum

import msgspec

__all__ = ["Kind", "Task", "understand"]


class Kind(StrEnum):
    """What a person may want of a folder."""

    SEARCH = "search"
    READ = "read"
    SURVEY = "survey"
    TALK = "talk"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task as far as it was understood."""

    kind: Kind
    term: str = ""
    """The words to search for."""
    file: str = ""
    """The file that the task names."""
    glob: str = "**/*"
    """The files that it is about."""
    places: tuple[str, ...] = ()
    """Words that may name a folder to stay in."""

    @property
    def pattern(self) -> str:
        """The term as a regular expression that means its characters themselves."""
        return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", self.term)


_QUOTED = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|“([^”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)")
_FILE = re.compile(
    r"(?<![\w*/.])(?:[\w.-]+/)*[\w.-]*\w\.[A-Za-z]\w{0,7}(?!\w)|\b(?:README|LICENSE|Makefile|Dockerfile)\b"
)
_GLOB = re.compile(r"(?<!\S)[\w./-]*\*[\w.*/{},-]*\w")
_PLACE = re.compile(r"\b(?:in|under|inside|below|within)\s+(?:the\s+|my\s+)?([\w./-]+)")
_TERM = re.compile(
    r"\b(?:mention(?:s|ing)?|contain(?:s|ing)?|search(?:ing)?(?: for)?|look(?:ing)? for|grep(?: for)?|find(?:ing)?"
    r"|occurrences? of|uses? of|where (?:is|are)|count|how many)\s+"
    r"(?:(?:the|all|any|every|each|me|word|words|string|text|of|lines?|with|that|mention|contain|say)\s+)*([\w@#-]+)",
    re.IGNORECASE,
)
_TYPICAL = re.compile(r"\b(error|warning|exception|failure|todo|fixme|bug)s?\b", re.IGNORECASE)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SEARCHING = _words(
    "search searching find finding grep look looking mention mentions contain contains containing which where count "
    "occurrences lines"
)
_SURVEYING = _words(
    "list files file folder folders directory directories count many glob overview explore tree structure here"
)
_NO_TERM = _SURVEYING | _words("a an the in out it them something anything everything for and")
_MAX_CHARS = 2000
"""A task's beginning says what it asks; piped input may follow it."""
_NO_FILE = frozenset({"e.g", "i.e"})
_LANGUAGES = {
    "python": "py",
    "markdown": "md",
    "javascript": "js",
    "typescript": "ts",
    "rust": "rs",
    "java": "java",
    "toml": "toml",
    "json": "json",
    "yaml": "yaml",
}


def understand(message: str) -> Task:
    """Return what a task asks for. `talk` when it is nothing that one does with files."""
    message = message[:_MAX_CHARS]
    quoted = [next(filter(None, found)) for found in _QUOTED.findall(message)]
    plain = _QUOTED.sub(" ", message)
    known = frozenset(re.findall(r"[a-z]+", plain.lower()))
    file = _file(plain) or next((name for name in quoted if _FILE.fullmatch(name)), "")
    term = _term(plain, [text for text in quoted if text != file], known)
    return Task(
        kind=_kind(term, file, known),
        term=term[:100],
        file=file,
        glob=_glob(plain, known),
        places=tuple(place.strip("./") for place in _PLACE.findall(plain)),
    )


def _kind(term: str, file: str, known: frozenset[str]) -> Kind:
    if term:
        return Kind.SEARCH
    if file:
        return Kind.READ
    return Kind.SURVEY if known & _SURVEYING else Kind.TALK


def _file(plain: str) -> str:
    return next((name for name in _FILE.findall(_GLOB.sub(" ", plain)) if name.lower() not in _NO_FILE), "")


def _glob(plain: str, known: frozenset[str]) -> str:
    if written := _GLOB.search(plain):
        return written[0] if "/" in written[0] else f"**/{written[0]}"
    endings = [ending for language, ending in _LANGUAGES.items() if language in known]
    return f"**/*.{endings[0]}" if endings else "**/*"


def _term(plain: str, quoted: list[str], known: frozenset[str]) -> str:
    if quoted and known & (_SEARCHING | _SURVEYING):
        return quoted[0]
    if known & (_SEARCHING | {"many"}):
        without_files = _FILE.sub(" ", plain)
        named = (word for word in _TERM.findall(without_files) if word.lower() not in _NO_TERM | set(_LANGUAGES))
        word = next(named, "")
        if word:
            return _singular(word)
        if typical := _TYPICAL.search(without_files):
            return typical[1]
    return ""


def _singular(word: str) -> str:
    """Return `error` for `errors`: it finds both."""
    return word[:-1] if word.islower() and word.endswith("s") and not word.endswith("ss") and len(word) > 4 else word
