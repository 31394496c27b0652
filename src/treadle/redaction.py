"""Redaction: takes secrets out of text and JSON that people or programs read. Changes nothing that is executed.

Three kinds of secrets are found: values that this process uses itself (`remember`), well-known forms such as `ghp_...` or
a private key, and fields by name such as `password=...`.
"""

import logging
import re
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.events import (
    AnyEvent,
    ContextCompacted,
    ContractViolated,
    DecisionRejected,
    ModelDelta,
    ModelDiscarded,
    ModelFailed,
    ModelFinished,
    RunFinished,
    ToolAttemptFailed,
    ToolFinished,
    ToolLate,
    ToolProgress,
)
from treadle.fields import checked, explained

__all__ = [
    "ECHOING",
    "KNOWN",
    "MARK",
    "Redactor",
    "is_secret_name",
    "known",
    "redacted_logger",
    "remember",
    "scrubbed",
    "secrets_of_address",
    "settled_length",
    "shown_error",
    "without_known",
]


# --- Known values: the secrets that this process uses itself, hidden wherever they occur in a text, in stored bytes or
# in an event.

MARK = "[redacted]"
"""What replaces a secret."""

_MIN_KNOWN_CHARS = 8
"""A shorter value is an ordinary word too often to be hidden wherever it occurs."""
_MAX_KNOWN = 1000


class KnownValues:
    """The secrets in use."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}
        self.needles: tuple[bytes, ...] = ()
        """The values as JSON writes them, without quotes."""
        self.longest_first: tuple[str, ...] = ()
        self._lock = threading.Lock()

    def add(self, values: Iterable[str]) -> None:
        fresh = {form for value in values for form in _forms(value.strip())} - self._values.keys()
        if not fresh:
            return
        with self._lock:
            self._values.update(dict.fromkeys(fresh))
            while len(self._values) > _MAX_KNOWN:
                del self._values[next(iter(self._values))]
            self.longest_first = tuple(sorted(self._values, key=len, reverse=True))
            self.needles = tuple(map(_as_json, self.longest_first))

    def is_in(self, text: str) -> bool:
        """Whether one of them is in a text."""
        values = self.longest_first
        if not values or len(text) < len(values[-1]):  # most pieces of a stream
            return False
        for value in values:  # noqa: SIM110 - any() takes twice as long, for each piece of a stream
            if value in text:
                return True
        return False

    def is_encoded_in(self, encoded: bytes) -> bool:
        """Whether one of them is in JSON."""
        for needle in self.needles:  # noqa: SIM110 - as above, for each event
            if needle in encoded:
                return True
        return False

    def hide(self, text: str) -> str:
        for value in self.longest_first:
            text = text.replace(value, MARK)
        return text


KNOWN = KnownValues()
"""The secrets that this process uses."""


def remember(values: Iterable[str]) -> None:
    """Hide these values from now on in everything that this process records as text, shows or logs.

    Args:
        values: Keys, tokens and passwords in use. Values of fewer than 8 characters are ignored.
    """
    KNOWN.add(values)


def without_known(content: bytes) -> bytes:
    """Return stored bytes without the values that were given to `remember`."""
    for value in KNOWN.longest_first:
        content = content.replace(value.encode("utf-8", "replace"), MARK.encode())
    return content


def _as_json(value: str) -> bytes:
    return msgspec.json.encode(value.encode("utf-8", "replace").decode())[1:-1]


def _forms(value: str) -> Iterable[str]:
    """A secret as it is, and as it is written in an address."""
    if len(value) >= _MIN_KNOWN_CHARS and value != MARK:
        yield value
        if (encoded := quote(value, safe="")) != value:
            yield encoded


# --- events

_encoder = msgspec.json.Encoder()


ECHOING = frozenset(
    {
        ContextCompacted,
        ModelDelta,
        ModelFinished,
        ModelFailed,
        ModelDiscarded,
        DecisionRejected,
        RunFinished,
        ToolAttemptFailed,
        ToolFinished,
        ToolLate,
        ToolProgress,
        ContractViolated,
    }
)
"""Events that may hold what a server, a tool or an error has said."""


def scrubbed(event: AnyEvent) -> AnyEvent:
    """Return an event as it is recorded and published: without the secrets that this process uses.

    A server may echo the key that it was sent, and a tool may print its environment. Arguments stay exact, because they are
    executed; so does thinking with a signature, because its server checks it.
    """
    if not KNOWN.needles or type(event) not in ECHOING:
        return event
    if type(event) is ModelDelta and event.call is None:
        is_clean = not KNOWN.is_in(event.text or event.thinking) and not (event.text and KNOWN.is_in(event.thinking))
    else:
        is_clean = not KNOWN.is_encoded_in(_encoder.encode(event))
    if is_clean:
        return event
    return msgspec.convert(_without(msgspec.to_builtins(event)), type(event))


def _without(value: Any) -> Any:  # Any: JSON
    match value:
        case str():
            return KNOWN.hide(value)
        case {"arguments": str()} | {"signature": str()}:
            return value
        case dict():
            return {key: _without(item) for key, item in value.items()}
        case list() | tuple():
            return [_without(item) for item in value]
        case _:
            return value


# --- Forms: how secrets look that were not named to us, such as `ghp_...`, a private key, or a field `password=...`.

_LONGEST_FORM = 22_000
"""Characters of the longest secret that is found, with what belongs to it: see the bounds of the forms."""
_SEEN_BEHIND = 64
"""Characters that a form looks at behind its end."""
_LONGEST_FIELD = 9_000
"""The same of all forms but private keys and web tokens."""
_SLICE_CHARS = 30_000

_FORMS = r"""
(?P<pem> -----BEGIN\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?----- (?:[^-]|-(?!-)){0,20000}+ (?:-----END\ [A-Z0-9\ ]{1,60}-----)? )
| (?<![A-Za-z0-9_]) (?P<form>
    [srp]k[-_](?:live|test|proj|ant|or|admin|svcacct)[-_][\w-]{4,512}
  | sk-[\w-]{16,512}
  | gh[pousr]_\w{10,512} | github_pat_\w{10,512} | glpat-[\w-]{10,512}
  | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,32}
  | AIza[\w-]{20,128}
  | SG\.[\w-]{10,64}\.[\w-]{10,128}
  | xox[a-z]-[\w-]{8,512} | xapp-[\w-]{8,512}
  | hf_\w{16,512} | gsk_\w{16,512} | xai-\w{16,512} | npm_\w{16,512} | pypi-[\w-]{16,512} | dop_v1_\w{16,512}
  | (?<!-)eyJ[\w-]{8,4096}\.[\w-]{4,8192}(?:\.[\w-]{0,8192})?
  )
| (?<![A-Za-z0-9_]) (?i:bearer)\ {1,4}(?P<bearer>(?=[\w.~+/=-]{0,32}[\d._~+/=-])[\w.~+/=-]{8,8192})
| (?:(?<=https)|(?<=http)|(?<=HTTPS)|(?<=HTTP)) ://(?P<web> (?!\*{3}@) [^\s/@"'<>\\]{1,512} )@
| ://[^\s/@:"'<>\\]{0,256}:(?P<userinfo> (?!\*{3}@) [^\s/@"'<>\\]{1,512} )@
| (?:postgres|postgresql|mysql|redis|rediss|amqp|mongodb)://[^\s/@:"'<>\\]{0,256}:(?P<database> (?!\*{3}@) [^\s@"'<>\\]{1,512} )@
| [?&] (?i:[\w.-]{0,40}?(?:key|token|secret|signature|sig|password|passwd|credential)) = (?P<query>[^&\s"'<>\\\#]{1,8192})
"""

_FIELD = r"""
(?<![/A-Za-z]) (?i: (?:[A-Za-z0-9]{1,20}[_.-]){0,4}
    (?:[A-Za-z]{0,12}?password|passwd|pwd(?=["'\\]{0,4}[ \t]{0,4}[:=][ \t]{0,4}[^\s/~.])|passphrase|[A-Za-z]{0,12}?secret|api[_-]?key|(?:shared[_-]?)?access[_-]?key|secret[_-]?key|private[_-]?key
      |(?:account|storage|shared|master|signing|encryption|consumer|subscription)[_-]?key
      |(?:[A-Za-z]{0,12}?[_-])?token|(?:proxy-)?authorization|credentials) )
(?: \\{0,3}["'] )? [ \t]{0,4} (?::|=>?) [ \t]{0,4} (?: (?i:bearer|basic|token|digest|negotiate)\ {1,4} )?
(?: \\{1,3}" (?P<escaped> [^"\\]{1,4096} )
  | " (?P<quoted> (?:[^"\\]|\\.){1,4096} )
  | ' (?P<single> [^'\n]{1,4096} )
  | (?P<bare> (?:[^\s"'\\,;&)\]}>({\[<|`$]|\$(?![({A-Z_])) (?:[^\s"'\\,;&)\]}>]|,(?=[^\s"'])){2,4096} ) )
| (?<!\S) --(?i:(?:[A-Za-z0-9]{1,20}-){0,3}(?:password|passwd|passphrase|secret|token|api-?key|access-?key|secret-?key|private-?key))
    [ \t]{1,4} (?P<flag> (?=[^\s]{0,64}[\d!\#%&*+./:=?@^_~-]) [^\s"'\\<>({\[`$|;&-][^\s"'\\;]{3,4096} )
| (?i:\b(?:set-)?cookie):[ \t]{0,4} (?P<cookie> [^\s=]{1,128}=[^\r\n"']{1,8192} )
"""

_BEGIN = r"""(?<![^\s/;|&(`"'$=])"""
"""A command begins here: each is a word of its own, so that few of them can share what follows."""
_WORDS = r"(?:[ \t]{1,4}[^\s]{1,256}){0,12}?[ \t]{1,4}"
_OPENING = r"""(?:\\{0,3}["'])?"""
_VALUE = r"""(?![$<{*%`])[^\s"'\\;|&<>)]{1,512}"""
_NUMBERS = r"(?!\d{1,9}(?![^\s\"']))"

_COMMAND = rf"""
{_BEGIN} (?:curl|xh|https?) {_WORDS} (?:-[uU]|-a|--user|--proxy-user|--auth) [ \t=]{{0,4}}
    (?: ' [^:'\n]{{0,128}} : (?P<spaced> {_NUMBERS} (?![$<{{*%`]) [^'\n]{{1,512}} )
      | {_OPENING} [^\s:"'\\/]{{0,128}} : (?P<login> {_NUMBERS} {_VALUE} ) )
| ["'] (?:-u|--user|--proxy-user) ["'] ,[ \t]{{0,4}} ["'] [^\s:"'\\/]{{0,128}} : (?P<listed> {_NUMBERS} (?![$<{{]) [^"'\\\s]{{1,512}} )
| {_BEGIN} (?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump|sshpass) {_WORDS} -p {_OPENING} (?P<attached> {_VALUE} )
| {_BEGIN} (?:sshpass|(?:docker|podman|helm[ ]registry)[ ]login|redis-cli|ldap(?:search|modify|add|delete|whoami)) {_WORDS}
    -[paw] [ \t]{{1,4}} {_OPENING} (?P<behind> (?!-) {_VALUE} )
| {_BEGIN} (?:smbclient|rpcclient|smbget) {_WORDS} -U [ \t=]{{0,4}} {_OPENING} [^\s%"']{{1,128}} % (?P<smb> {_VALUE} )
| (?<!\S) -pass(?:in|out|word)? [ \t]{{1,4}} {_OPENING} pass: (?P<openssl> {_VALUE} )
| (?<!\S) login \s{{1,8}} [^\s]{{1,128}} \s{{1,8}} password \s{{1,8}} (?P<netrc> {_VALUE} )
| (?i:\bauthorization) ["']? [ \t]{{0,4}} [:=] [ \t]{{0,4}} ["']? (?i:digest|aws4-hmac-sha256) [ \t]{{1,4}} (?P<digest> [^\r\n']{{1,2048}} )
"""

_HIDING = re.compile(f"{_COMMAND} | {_FORMS} | {_FIELD}", re.VERBOSE)
_HINTS = (  # noqa: SIM905 - a list would take a line for each
    "private key|sk-|sk_|rk-|rk_|pk-|pk_|ghp_|gho_|ghu_|ghr_|ghs_|github_pat|glpat|akia|asia|abia|acca|aiza|xox|sg.|xapp|hf_|gsk_|xai-"
    "|npm_|pypi-|dop_v1|curl|xh |http |https |mysql|mariadb|redis-cli|ldap|smb|rpcclient|login|-u\"|-u'|-user\"|-user'|eyj|bearer|://"
    "|pass|pwd|secret|key|token|authorization|credential|cookie|?sig|&sig"
).split("|")
"""What every form holds somewhere, in lower case: a text without any of it is passed over."""
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{1,60}-----")
_LAST_WORD = re.compile(r"[^\s]{0,8192}+\Z")
_UNDER_WAY = re.compile(
    _BEGIN
    + r"(?:curl|xh|https?|mysql|mysqldump|mysqladmin|mariadb|mariadb-dump|sshpass|docker|podman|helm|redis-cli|ldap\w{3,6}|smbclient"
    r"|rpcclient|smbget|login|-pass(?:in|out|word)?|(?i:authorization)[\"']?[ \t]{0,4}[:=])(?![^\s])"
)
"""A command whose line has not ended: a password may follow."""
_LINE_CHARS = 5000
_LEADS = re.compile(
    r"""(?i)(?<!\S)\S{0,60}(?:bearer|basic|=>?|:|password["']?|secret["']?|key["']?|token["']?|credentials["']?)[ \t]{1,4}\Z"""
)
_MAX_HELD_CHARS = 24_000
"""Of a text that grows: where it does not become clear by then, it is shown as it is."""
HARMLESS = re.compile(r"(?i)\[redacted|\*+$|none$|null$|true$|false$|undefined$|string$|str$")
PLAIN = re.compile(r"[\w.~+/=:@%!#^*-]*")
"""Characters with which a hidden value cannot act: nothing of a command line, a query or a second field."""


Marker = Callable[[re.Match[str]], str]


def hidden(text: str, marker: Marker) -> str:
    """Return a text with each secret as the marker shows it."""
    if len(text) > _SLICE_CHARS:
        return "".join(_in_slices(text, marker))
    return _HIDING.sub(marker, text) if _may_hold_a_secret(text) else text


def _may_hold_a_secret(text: str) -> bool:
    """Whether a form may be in a text. One search for all hints, without case, takes ten times as long."""
    if not text.isascii():  # letters that count as `s` and `i` where case does not count
        text = text.replace("\u017f", "s").replace("\u0130", "i").replace("\u0131", "i")
    return any(map(text.lower().__contains__, _HINTS))


def settled_length(text: str) -> int:
    """Return how much of the beginning of a growing text can be redacted already: what follows may be half a secret."""
    end = len(text)
    if end > _MAX_HELD_CHARS:
        return end
    if (begun := text.rfind("-----BEGIN")) >= 0 and _KEY_END.search(text, begun) is None:
        return begun
    for found in _HIDING.finditer(text):
        if found.end() == end:
            return found.start()
    start = end - len(_LAST_WORD.search(text)[0])  # type: ignore[index]  # matches the empty text too
    line = max(text.rfind("\n", 0, end) + 1, end - _LINE_CHARS)
    if (command := _UNDER_WAY.search(text, line)) is not None:
        start = min(start, command.start())
    while (lead := _LEADS.search(text[max(0, start - 100) : start])) is not None and lead[0]:
        start -= len(lead[0])
    return start


def _in_slices(text: str, marker: Marker) -> Iterator[str]:
    """Yield a long text with its secrets replaced. No search is long: each holds up all threads of the process."""
    kept = at = 0
    while at < len(text):
        end = min(at + _SLICE_CHARS, len(text))
        settled = end if end == len(text) else end - _SEEN_BEHIND - 1
        if _may_hold_a_secret(text[at:end]):
            while (found := _HIDING.search(text, at, end)) is not None and found.end() <= settled:
                yield text[kept : found.start()]
                yield marker(found)
                kept = at = found.end()
        if end == len(text):
            break
        # Whatever began before this has ended within the slice.
        may_be_long = (
            text.find("-----BEGIN", end - _LONGEST_FORM, end) >= 0 or text.find("eyJ", end - _LONGEST_FORM, end) >= 0
        )
        at = max(at, end - (_LONGEST_FORM if may_be_long else _LONGEST_FIELD))
    yield text[kept:]


def mark(found: re.Match[str]) -> str:
    return _replaced(found, lambda _: MARK)


def careful_mark(found: re.Match[str]) -> str:
    if found["pem"] is not None:
        return sized(found[0])
    return _replaced(found, lambda secret: sized(secret) if PLAIN.fullmatch(secret) else secret)


def _replaced(found: re.Match[str], mark: Callable[[str], str]) -> str:
    """Return the match with its secret replaced, and the name and quotes around it kept."""
    group = found.lastgroup
    assert group is not None
    secret = found[group]
    if HARMLESS.match(secret):
        return found[0]
    start, end = found.start(group) - found.start(), found.end(group) - found.start()
    return found[0][:start] + mark(secret) + found[0][end:]


def sized(secret: str) -> str:
    return f"[redacted: {len(secret)} characters]"


# --- Names: which fields, variables and parts of an address hold a secret, by their names.

_NAMES = frozenset(
    {
        "authorization",
        "awsbearertokenbedrock",
        "bearer",
        "cookie",
        "passphrase",
        "passwd",
        "proxyauthorization",
        "setcookie",
    }
)
_QUERY_NAMES = frozenset({"auth", "code", "key", "sig", "signature", "subscription-key"})
_ENDINGS = ("auth", "password", "secret", "apikey", "accesskey", "secretkey", "privatekey", "token", "credentials")
_USERINFO = re.compile(r"""://([^\s/@"'<>\\]{1,512})@""")


def is_secret_name(name: str) -> bool:
    """Whether a field or variable by this name holds a secret: `api_key`, `DB_PASSWORD`, `client-secret`."""
    plain = re.sub("[^a-z0-9]", "", name[-100:].lower())
    return plain in _NAMES or plain.endswith(_ENDINGS)


def known(environment: Mapping[str, str]) -> list[str]:
    """Return the values of an environment that are secrets: by the variable's name, and those inside addresses."""
    named = [value for name, value in environment.items() if is_secret_name(name)]
    return named + [secret for value in environment.values() if "://" in value for secret in secrets_of_address(value)]


def secrets_of_address(address: str) -> list[str]:
    """Return what of an address is secret: its password (of the web the user, too), and its query where that holds a key."""
    is_web = address.strip()[:4].lower() == "http"
    found = [one.partition(":")[2] or (one if is_web else "") for one in _USERINFO.findall(address)]
    query = address.partition("?")[2].partition("#")[0]
    for pair in query.split("&")[:50]:
        name, _, value = pair.partition("=")
        if is_secret_name(name) or name.lower() in _QUERY_NAMES:
            found.append(value)
    return [form for one in found for form in (one, unquote(one)) if form]


# --- The redactor: takes secrets out of text and JSON that people or programs read. Changes nothing that is executed.

_MAX_PATTERN_CHARS = 200


class Redactor:
    """Takes the secrets out of text and JSON values.

    Example:
        Redactor(patterns=["acme-*"]).text("key acme-4711 and password=hunter2")  # key [redacted] and password=[redacted]

    Args:
        patterns: Forms of one's own: literal text with `*` for any number of letters, digits and `_-./+=~`.
        is_on: Whether forms and fields are looked for. Values in use (`remember`) are hidden anyway.

    Raises:
        ConfigurationError: A pattern is invalid.
    """

    @checked
    def __init__(self, *, patterns: Sequence[str] = (), is_on: bool = True) -> None:
        own = "|".join(map(_own, patterns))
        self._own = re.compile(own) if own else None
        self._is_on = is_on

    @classmethod
    @checked
    def for_environment(
        cls, environment: Mapping[str, str], *, patterns: Sequence[str] = (), is_on: bool = True
    ) -> "Redactor":
        """Return a redactor for a program with this environment, whose secrets are hidden from now on: see `remember`.

        Args:
            environment: Variables of the process, such as `os.environ`; the values of secret ones are hidden.
            patterns: Secrets of your own: literal texts with at most one `*` each.
            is_on: Whether well-known forms and fields are hidden too; else only the values of the environment.

        Raises:
            ConfigurationError: A pattern is invalid.
        """
        remember(known(environment))
        return cls(patterns=patterns, is_on=is_on)

    @explained
    def text(self, text: str) -> str:
        """Return a text with `[redacted]` in place of each secret."""
        return self._hidden(text, mark)

    @checked
    def pieces(self, text: str) -> Iterator[str]:
        """Return a text in pieces, with `[redacted]` in place of each secret. For one that takes long to be joined."""
        text = self._without_own(text)
        return _in_slices(text, mark) if self._is_on else iter((text,))

    @explained
    def consent(self, text: str) -> str:
        """Return a text for a person who decides on it: only what cannot act is hidden, and its length is shown.

        A value that holds a blank or a character of command lines is shown even if its field is called `password`:
        otherwise a call could hide what it does behind such a name.
        """
        return self._hidden(text, careful_mark)

    @explained
    def settled(self, text: str) -> int:
        """Return how much of the beginning of a growing text can be redacted already: what follows may be half a secret."""
        return settled_length(text)

    def value(self, value: Any) -> Any:  # Any: JSON
        """Return a JSON value without secrets: in its texts, its keys, and its fields by name."""
        return self._value(value, _Shown(partial(self._hidden, marker=mark)).__getitem__)

    def consented(self, value: Any) -> Any:  # Any: JSON
        """Return a JSON value as `consent` returns a text."""
        return self._value(value, self.consent)

    def _value(self, value: Any, hide: Any) -> Any:
        match value:
            case str():
                return hide(value)
            case dict():
                return {
                    hide(key) if isinstance(key, str) else key: self._field(key, item, hide)
                    for key, item in value.items()
                }
            case list() | tuple():
                return [self._value(item, hide) for item in value]
            case _:
                return value

    def _field(self, name: Any, value: Any, hide: Any) -> Any:
        if not self._is_on or not isinstance(name, str) or not is_secret_name(name):
            return self._value(value, hide)
        if isinstance(value, str):
            is_shown = not value or HARMLESS.match(value) or (hide == self.consent and not PLAIN.fullmatch(value))
            return hide(value) if is_shown else (sized(value) if hide == self.consent else MARK)
        if isinstance(value, list):
            return [self._field(name, item, hide) for item in value]
        return self._value(value, hide)

    def _hidden(self, text: str, marker: Marker) -> str:
        text = self._without_own(text)
        return hidden(text, marker) if self._is_on else text

    def _without_own(self, text: str) -> str:
        text = KNOWN.hide(text)
        return text if self._own is None or not self._is_on else self._own.sub(MARK, text)


class _Shown(dict[str, str]):
    """Texts as they are shown, by what they say: names of fields, and ids, recur."""

    def __init__(self, show: Callable[[str], str]) -> None:
        self._show = show

    def __missing__(self, text: str) -> str:
        shown = self[text] = self._show(text)
        return shown


def _own(pattern: str) -> str:
    if not 0 < len(pattern) <= _MAX_PATTERN_CHARS or pattern.count("*") > 1:
        raise ConfigurationError(
            f"A redaction pattern is literal text with at most one `*`, such as 'acme-*'; got {shown(pattern)}."
        )
    before, star, behind = pattern.partition("*")
    if len(before) < 2:
        raise ConfigurationError(
            f"A redaction pattern begins with at least 2 literal characters; got {shown(pattern)}."
        )
    return re.escape(before) + (r"[\w./+=~-]{0,512}" if star else "") + re.escape(behind)


# --- Logs: errors and lines of the log, bounded and without secrets: a library may quote an address or a header in
# them.

_LONGEST_WORDS = 16_000
"""Characters of an error or of a line of the log."""
_MAX_CAUSES = 5
_MAX_FRAMES = 50


def shown_error(error: BaseException) -> str:
    """Return what an error says, without secrets: a library may quote an address or a header in it."""
    return Redactor().text(_shortened(_message_of(error)))


def _traceback(error: BaseException | None) -> str:
    """Return the last frames and the words of an error and of its causes, all bounded."""
    reported: list[str] = []
    while error is not None and len(reported) < _MAX_CAUSES:
        frames = "".join(traceback.format_tb(error.__traceback__, limit=-_MAX_FRAMES))
        head = "Traceback (most recent call last):\n" if frames else ""
        reported.append(f"{head}{frames}{type(error).__name__}: {_shortened(_message_of(error))}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n\nThe exception above led to this one:\n\n".join(reversed(reported))


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - an error whose text raises, SystemExit too, must not take the run with it
        return ""


def _shortened(text: str) -> str:
    """Cut what an error or a log line says, so that looking through it holds nobody up."""
    if len(text) <= _LONGEST_WORDS:
        return text
    half = _LONGEST_WORDS // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters left out ...] {text[-half:]}"


class _Redacting(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        redactor = Redactor()
        record.msg, record.args = _writable(redactor.text(_shortened(record.getMessage()))), None
        if record.exc_info and not record.exc_text:  # formatted here, so that no handler formats it as it is
            record.exc_text = _writable(redactor.text(_traceback(record.exc_info[1])))
        return True


def _writable(text: str) -> str:
    """Return a text that any handler can write: half characters, which UTF-8 cannot say, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def redacted_logger(name: str) -> logging.Logger:
    """Return a module's logger, which redacts: the errors of tools and servers may quote anything."""
    logger = logging.getLogger(name)
    logger.addFilter(_Redacting())
    return logger
