"""Protected files: those that run programs, or decide what may run, when nobody looks at them. Values only.

Who writes one of them acts later, and outside of every rule: a hook of git, a start file of a shell, a `.pth` of Python, the settings of
an agent. So writing one is asked about in every mode, also where the file does not exist yet.
"""

import fnmatch
import ipaddress
import re
import socket
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

__all__ = [
    "HOME_FOLDERS",
    "SEALED",
    "UNDER_WAY",
    "canonical_host",
    "canonical_host_glob",
    "is_protected",
    "lies_in",
    "makes_repository",
    "may_name_protected",
]

_AGENTS = (
    ".treadle", ".agents", ".amazonq", ".amp", ".augment", ".claude", ".clinerules", ".codebuddy", ".codex", ".continue", ".copilot", ".crush", ".cursor",
    ".factory", ".firebender", ".forge", ".gemini", ".goose", ".iflow", ".junie", ".kilo", ".kilocode", ".kimi", ".kiro", ".opencode", ".openhands", ".pi",
    ".qodo", ".qwen", ".roo", ".rovodev", ".tabnine", ".trae", ".vibe", ".warp", ".windsurf", ".zencoder",
)  # fmt: skip
_EDITORS = (
    ".vscode",
    ".vs",
    ".idea",
    ".zed",
    ".fleet",
    ".nova",
    ".helix",
    ".theia",
    ".devcontainer",
    ".externalToolBuilders",
)
_LEFTHOOK = tuple(
    f"{folder}lefthook{local}.{end}"
    for folder in ("", ".", ".config/")
    for local in ("", "-local")
    for end in ("yml", "yaml", "json", "jsonc", "toml")
)

SEALED = (
    ".git", ".gitmodules", ".githooks",
    ".jj/repo/config.toml", ".jj/workspace-config.toml", ".hg/hgrc", ".hg/hgrc-not-shared", ".hg/sharedpath", ".sl/config",
    ".husky", ".huskyrc", ".huskyrc.json", ".huskyrc.yaml", ".huskyrc.yml", ".huskyrc.js", "husky.config.js", *_LEFTHOOK, "captainhook.json", "grumphp.yml",
    ".pre-commit-config.yaml", ".pre-commit-config.yml", "prek.toml", ".overcommit.yml", ".local-overcommit.yml",
    *_AGENTS, ".mcp.json", ".claude.json", "opencode.json", "opencode.jsonc", "crush.json", ".crush.json", ".continuerc.json", ".roomodes", ".kilocodemodes",
    ".aider.conf.yml", ".aider.model.settings.yml", ".github/hooks", ".github/copilot",
    *_EDITORS, "*.code-workspace", "*.sublime-project", ".devcontainer.json", ".exrc", "_exrc", ".vimrc", "_vimrc", ".lvimrc", ".nvimrc", ".nvim.lua",
    ".ycm_extra_conf.py", ".dir-locals.el", ".dir-locals-2.el",
    ".envrc", ".direnv", ".autoenv", ".autoenv.leave", ".autoenv.zsh", ".autoenv_leave.zsh", ".shadowenv.d", ".rvmrc", ".tool-versions", ".prototools",
    "mise.toml", "mise.*.toml", ".mise.toml", ".mise.*.toml", "mise/config.toml", "mise/config.*.toml", ".mise", ".rtx.toml",
    "rust-toolchain", "rust-toolchain.toml",
    ".cargo/config", ".cargo/config.toml", ".bazelrc", ".bazelversion", ".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/releases", ".yarn/plugins",
    ".pnpmfile.cjs", ".pnpmfile.mjs", ".mvn", "ansible.cfg", ".pdbrc", ".gdbinit", ".lldbinit", ".irbrc", ".pryrc", ".Rprofile", ".Renviron",
    ".iex.exs", ".erlang", ".ghci", ".ocamlinit", ".octaverc", ".ugrep",
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion", ".profile", ".login", ".logout", ".cshrc", ".tcshrc", ".kshrc",
    ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".pam_environment",
    ".gitconfig", ".hgrc", ".emacs", ".emacs.d", ".vim", ".tmux.conf", ".screenrc", ".ssh", ".gnupg", ".forward", ".mailcap", ".rhosts",
    ".config/treadle", ".config/git", ".config/fish", ".config/autostart", ".config/systemd", ".config/environment.d", ".config/nvim",
    ".config/mise", ".config/mise.toml", ".config/mise.*.toml", ".bash_functions", ".bashrc.d", ".oh-my-zsh", ".cargo/env", ".nvm/nvm.sh", ".psqlrc",
    ".sqliterc", ".config/Code/User", ".config/zed", ".config/tmux", ".config/direnv", ".config/gdb", ".config/i3", ".config/sway", ".config/hypr",
    ".config/kitty", ".config/plasma-workspace", ".local/share/systemd", ".local/share/dbus-1", ".local/share/applications", ".local/lib",
)  # fmt: skip
"""Names that stay as they are in a sandbox's writable folders, also where they do not exist: what is there makes a program of the person run
code, though the person does not call the code of the project. The last eight lines are for a home that is writable. A `*` in the last part
of a name stands for anything.

Code is not among them that is run because somebody runs the project (a Makefile, a
`conftest.py`), what runs on another machine (`.github/workflows`), nor what only holds values (`.env`)."""

UNDER_WAY = ("rebase-merge", "rebase-apply", "sequencer")
"""What git is in the middle of, in the directory of a repository: it names programs that git runs once it continues (`exec` of a rebase)."""

HOME_FOLDERS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".treadle", ".claude", ".config", ".config/git", ".config/treadle", ".config/gh",
    ".config/fish", ".config/autostart", ".config/systemd/user",
)  # fmt: skip
"""Folders of a person's home whose files are looked at where a file of a project may be another name of one of them."""

_FOLDERS = frozenset(
    [
        *_AGENTS, *map(str.casefold, _EDITORS), ".git", ".hg", ".jj", ".sl", ".husky", ".githooks", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker",
        ".config", ".direnv", ".mise", ".cargo", ".yarn", ".mvn", ".ipython", ".jupyter", ".emacs.d", ".vim", ".oh-my-zsh",
    ]
)  # fmt: skip
"""Folders that are protected with all that is in them, wherever they are."""
_FILES = frozenset(
    [
        *(one.casefold() for one in SEALED if "/" not in one and "*" not in one),
        ".gitattributes", "mcp.json", ".env", ".mkshrc", ".shrc", ".gvimrc", ".nanorc", ".psqlrc", ".sqliterc", ".my.cnf", ".pythonrc",
        ".pythonrc.py", ".pypirc", ".netrc", ".curlrc", ".wgetrc", ".ripgreprc", ".lesskey", ".lessfilter", "sitecustomize.py", "usercustomize.py",
        "authorized_keys", "authorized_keys2", "known_hosts", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials.json", ".git-credentials",
        ".pgpass", ".vault-token", "crontab",
    ]
)  # fmt: skip
"""Files that are protected wherever they are."""
_WAYS = tuple(parts for one in SEALED if (parts := tuple(one.split("/")))[1:] and parts[0] not in _FOLDERS)
"""Names that are protected wherever they are, though neither of their parts is one."""
_PATTERNS = (
    *(one for one in SEALED if "*" in one and "/" not in one),
    "*.pth",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.kdbx",
    ".env.*",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
)
_PUBLIC = frozenset({".env.example", ".env.sample", ".env.template", ".env.dist"})
"""Files that the patterns find, and that hold nothing."""

_WORDS = re.compile(r"[^\s;|&<>()=,:]+")
_QUOTES = str.maketrans("", "", "'\"\\")
_EXPANDED = re.compile(r"\$\([^()]*\)|\$\{[^{}]*\}|\$\w+|`[^`]*`(?=\w)")
"""What the shell may put in place of nothing."""
_EXPANSIONS = frozenset("*?[{$`")


def is_protected(names: Sequence[str]) -> bool:
    """Whether one of the canonical names of a thing is that of a protected file, or lies in a protected folder.

    Spellings that some file system takes for one are one: case, composed characters, invisible ones, dots and blanks at the end.

    Args:
        names: Of one thing. Where one is relative to a root folder, only those that are count: the root itself may lie anywhere.
    """
    relative = [name for name in names if not name.startswith("/")]
    return any(_is_protected(name) for name in relative or names)


def lies_in(names: Sequence[str], places: Sequence[str]) -> bool:
    """Whether one of the canonical names of a thing from `/` is one of some places, or lies below one. Spellings count as in `is_protected`."""
    found = [_parts(name) for name in names if name.startswith("/")]
    return any(parts[: len(place)] == place for parts in found for place in map(_parts, places))


def makes_repository(names: Sequence[str]) -> bool:
    """Whether a file that is written may turn its folder into a repository of git, which runs what the `config` beside it says: a `HEAD`.

    It is not a protected name, since every command of git may mention it.
    """
    return any(_folded(re.split(r"[/\\]", name)[-1]) == "head" for name in names)


def may_name_protected(text: str) -> bool:
    """Whether a text that nobody can read for sure, such as a line of shell with variables, mentions a protected file.

    A word counts without its quotes, and one with a wildcard or a variable counts for whatever it may become behind a dot.
    """
    if "$'" in text:
        return True  # its escapes may spell anything
    plain = text.translate(_QUOTES)
    texts = (plain, plain.replace("`", " "), _EXPANDED.sub("", plain).replace("`", " "))
    return any(_may_be_protected(word) for one in dict.fromkeys(texts) for word in _WORDS.findall(one))


@lru_cache(maxsize=256)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(folded for part in re.split(r"[/\\]", path) if (folded := _folded(part)) not in ("", ".", ".."))


def _is_protected(path: str) -> bool:
    parts = _parts(path)
    if any(part.endswith(".git") for part in parts[:-1]):
        return True  # a repository without a working tree, as its name says
    if any(part in _FOLDERS for part in parts) or any(map(_is_file, parts)):
        return True
    return any(_lie_in(parts, way) for way in _WAYS if parts[1:])


def _lie_in(parts: tuple[str, ...], way: tuple[str, ...]) -> bool:
    found = (parts[at : at + len(way)] for at in range(len(parts) - len(way) + 1))
    return any(one[:-1] == way[:-1] and fnmatch.fnmatchcase(one[-1], way[-1]) for one in found)


def _is_file(name: str) -> bool:
    if name in _FILES:
        return True
    return name not in _PUBLIC and any(fnmatch.fnmatchcase(name, pattern) for pattern in _PATTERNS)


def _may_be_protected(word: str) -> bool:
    if _is_protected(word):
        return True
    return any(
        part.startswith(".") and not part.startswith("..") and bool(set(part) & _EXPANSIONS) and _may_become(part)
        for part in word.split("/")
    )


def _may_become(part: str) -> bool:
    """Whether a name that begins with a dot may become a protected one once the shell has expanded it."""
    pattern = re.sub(r"[{$`].*", "*", _folded(part))
    return any(fnmatch.fnmatchcase(name, pattern) for name in _FOLDERS | _FILES)


def _folded(name: str) -> str:
    plain = "".join(one for one in unicodedata.normalize("NFKC", name) if unicodedata.category(one) != "Cf")
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", plain).casefold())
    stream, _, _ = folded.partition(":")  # `.git::$INDEX_ALLOCATION` is `.git` to Windows
    return (stream or folded).rstrip(". ") if folded.strip(". ") else folded


# --- Hosts: the one spelling in which a host is judged, asked for and compared with rules. Resolves nothing.

_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}")
_WILD = frozenset("*?[")
_MAX_NAME = 253


def canonical_host(given: str) -> str:
    """Return a host in small letters and ASCII, without brackets and without a dot at its end; an address of IPv4 as four decimals.

    `127.1`, `2130706433`, `0x7f.0.0.1`, `0177.0.0.1` and `::ffff:127.0.0.1` all are `127.0.0.1`, as they are for whoever connects.

    Raises:
        ValueError: With a sentence: it is not a host.
    """
    if "%" in given:
        raise ValueError("The host of the address names a zone or is encoded. Write its plain name.")
    host = given.lower()
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
        except ValueError as error:
            raise ValueError(f"{given[:60]!r} is not an IPv6 address.") from error
        return address.compressed if address.ipv4_mapped is None else str(address.ipv4_mapped)
    try:
        host = (host.encode("idna").decode() if not host.isascii() else host).lower().removesuffix(".")
    except UnicodeError as error:
        raise ValueError(f"{given[:60]!r} is not a valid host name.") from error
    if not _NAME.fullmatch(host) or len(host) > _MAX_NAME:
        raise ValueError(f"{given[:60]!r} is not a valid host name.")
    if not _NUMBER.fullmatch(host):
        return host
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError as error:
        raise ValueError(f"{given[:60]!r} is neither a name nor an address.") from error


def canonical_host_glob(glob: str) -> str:
    """Return the host that a rule names in the spelling of `canonical_host`. One with wildcards has small letters and no dot at its end."""
    plain = glob.strip().lower()
    if _WILD & set(plain.removeprefix("[")) or (plain.startswith("[") and ":" not in plain):
        return plain.removesuffix(".")
    try:
        return canonical_host(plain)
    except ValueError:
        return plain
