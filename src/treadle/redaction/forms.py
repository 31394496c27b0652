"""Forms: how secrets look that were not named to us, such as `ghp_...`, a private key, or a field `password=...`.

Work is linear in the text: every repetition has a bound, and none can begin anew at each character.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice

from treadle.redaction.known_values import MARK

__all__ = ["HARMLESS", "PLAIN", "careful_mark", "hidden", "hidden_in_pieces", "mark", "settled_length", "sized"]

_LONGEST_FORM = 22_000
"""Characters of the longest secret that is found, with what belongs to it: see the bounds of the forms."""
_SEEN_BEHIND = 64
"""Characters that a form looks at behind its end."""
_LONGEST_FIELD = 9_000
"""The same of all forms but private keys and web tokens."""
_SLICE_CHARS = 30_000
_MANY_PIECES = 10_000

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
_HINT = re.compile(
    r"(?i)PRIVATE KEY|[srp]k[-_]|gh[pousr]_|github_pat|glpat|AKIA|ASIA|ABIA|ACCA|AIza|xox|SG[.]|xapp|hf_|gsk_|xai-|npm_|pypi-|dop_v1"
    r"|curl|xh[ ]|https?[ ]|mysql|mariadb|redis-cli|ldap|smb|rpcclient|login|-u[\"']|-user[\"']"
    "|eyJ|bearer|://|pass|pwd|secret|key|token|authorization|credential|cookie|[?&]sig"
)
"""What every form holds somewhere: a text without any of it is passed over in one quick search."""
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
"""Of a text that grows: where it does not become clear by then, it is shown as it stands."""
HARMLESS = re.compile(r"(?i)\[redacted|\*+$|none$|null$|true$|false$|undefined$|string$|str$")
PLAIN = re.compile(r"[\w.~+/=:@%!#^*-]*")
"""Characters with which a hidden value cannot act: nothing of a command line, a query or a second field."""


Marker = Callable[[re.Match[str]], str]


def hidden(text: str, marker: Marker) -> str:
    """Return a text with each secret as the marker shows it."""
    if len(text) > _SLICE_CHARS:
        return "".join(hidden_in_pieces(text, marker))
    return _HIDING.sub(marker, text) if _HINT.search(text) else text


def hidden_in_pieces(text: str, marker: Marker) -> Iterator[str]:
    """Return the same in pieces, for a text that takes long to be joined."""
    return _joined_often(_in_slices(text, marker))


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


def _joined_often(pieces: Iterator[str]) -> Iterator[str]:
    """Join what is next to each other: to join millions of pieces at once holds up all threads of the process."""
    while group := list(islice(pieces, _MANY_PIECES)):
        yield "".join(group)


def _in_slices(text: str, marker: Marker) -> Iterator[str]:
    """Yield a long text with its secrets replaced. No search is long: each holds up all threads of the process."""
    kept = at = 0
    while at < len(text):
        end = min(at + _SLICE_CHARS, len(text))
        settled = end if end == len(text) else end - _SEEN_BEHIND - 1
        if _HINT.search(text, at, end):
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
