"""The table of programs: what each does (reads, writes, acts), which of its options are known, and which of its words are paths.

Data, and how it is written down. A program or an option that is not here is not known: nothing runs unasked because of a guess.
"""

import posixpath
import re
from types import MappingProxyType
from typing import Literal

import msgspec

__all__ = [
    "AWK",
    "CHANGING_GIT",
    "CODE_OPTIONS",
    "INTERPRETERS",
    "LOSING",
    "MODULE_RUNNERS",
    "PROGRAMS",
    "RUNNERS",
    "SEARCHING",
    "SHELLS",
    "STEADY_NPM",
    "SUBCOMMANDS",
    "TARGETS",
    "TURNING",
    "WRAPPERS",
    "Does",
    "Program",
    "program_name",
]

Does = Literal["reads", "writes", "acts"]

AWK = ("awk", "gawk", "mawk", "nawk")
_VERSION = re.compile(r"[-.]?\d+(\.\d+)*$")


def program_name(word: str) -> str:
    """Return a program's plain name: no folder and no version (`/usr/bin/python3.11` is `python`)."""
    name = posixpath.basename(word)
    return (_VERSION.sub("", name) or name).lower()


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One program, or one subcommand of it."""

    does: Does
    """`reads`: it changes nothing. `writes`: it changes the files that it names, and nothing else. `acts`: it runs code, or speaks to another
    machine."""
    flags: frozenset[str] = frozenset()
    """Options without a value."""
    values: frozenset[str] = frozenset()
    """Options whose value is not a path. One with `=` at its end takes it behind this sign only: `--color=`."""
    paths: frozenset[str] = frozenset()
    """Options whose value is a path that is read, or written by a program that writes."""
    operands: Literal["paths", "text", "first_text", "sources", "git", "git_paths"] = "paths"
    """`paths`: each may be one. `first_text`: all but a pattern or script. `text`: none. `sources`: the last is written, the others are read.
    `git`: a revision or a path, as git says. `git_paths`: paths, in the working tree."""
    texts: frozenset[str] = frozenset()
    """Options beside which no operand is the pattern or script: `grep -e`."""
    deep: frozenset[str] | None = frozenset()
    """Options with which it goes through whole folders, and where no path is given through the one it is in; None if it always does."""
    folder: Literal["itself", "children", "tree", "file"] = "itself"
    """What it reaches of a folder that it is given, where it does not go through all of it. `file`: what it does to a folder is not known."""
    most: int | None = None
    """How many operands it may be given; more are files that it would write (`uniq IN OUT`)."""
    is_text: bool = False
    """Whether it takes every word for text, also one that looks like an option."""
    is_words: bool = False
    """Whether an option is one whole word with one dash: `find -name`."""
    only: str | None = None
    """What its scripts, or its operands where it has none, look like where they only do what they say: a regular expression for each."""
    shows: frozenset[str] | None = frozenset()
    """Of git: options with which it shows what is in files; None if it always does."""
    needs: tuple[str, ...] = ()
    """What it needs of the world outside of a sandbox: `git`, `network`, `unconfined`."""


def _options(text: str) -> frozenset[str]:
    """Read a list of options: `-abc` are three, `--long` and a word with one dash and `!` (`-name!`) are one."""
    found: set[str] = set()
    for one in text.split():
        if one.startswith("--") or one.endswith("!"):
            found.add(one.removesuffix("!"))
        else:
            found.update(f"-{letter}" for letter in one[1:])
    return frozenset(found)


_OPTIONS = frozenset({"flags", "values", "paths", "texts", "deep", "shows"})


def _program(does: Does, flags: str = "", **settings: object) -> Program:
    words = {
        name: _options(value) if name in _OPTIONS and isinstance(value, str) else value
        for name, value in settings.items()
    }
    return msgspec.convert({"does": does, "flags": _options(flags), **words}, Program)


def _reads(flags: str = "", **settings: object) -> Program:
    return _program("reads", flags, **settings)


def _writes(flags: str = "", **settings: object) -> Program:
    return _program("writes", flags, **settings)


def _each(names: str, program: Program) -> dict[str, Program]:
    return dict.fromkeys(names.split(), program)


_PART = r"(?:\[\^?[^\]^\\\[/|#,\n][^\]\\\[/|#,\n]*\]|\\(?!\1)[^\n]|(?!\1)[^\\\[\n])*"
"""Text between the signs of a `s` of sed. A set of characters may hold such a sign, which does not end it: then nothing is harmless. Nor is
`[^]`: there, the `]` belongs to the set, which continues."""
_LINES = r"(?:[0-9]+|\$|/(?:\[\^?[^\]^\\\[/\n][^\]\\\[/\n]*\]|\\[^/\n]|[^/\\\[\n])*/I?)"
"""A line of the input: by its number, or by what is in it."""
_SED = rf"(?:(?:{_LINES}(?:,(?:\+[0-9]+|{_LINES}))? ?!? ?)?(?:[pdq=]|s([/|#,]){_PART}\1{_PART}\1[gIip0-9]*)( *; *|$))+"
"""A script that only prints, leaves out or replaces lines."""
_AWK = r"(?!.*(?:system|getline|ARGV|ARGC|ENVIRON|SYMTAB|PROCINFO|print(?:[^>]|>=)*>(?!=)))[^|&`@]+(?:&&[^|&`@]+)*"
"""A program that starts no other, reads no file that no word names, and writes none."""

# Tables, one row for each program.
# fmt: off
_GREP = _reads(
    "-inlcwvsFEGPxorHhzaqLUbIT --ignore-case --line-number --files-with-matches --files-without-match --count --word-regexp --invert-match "
    "--fixed-strings --extended-regexp --perl-regexp --only-matching --recursive --with-filename --no-filename --text --quiet "
    "--no-messages --null --line-buffered -0123456789",
    values="-emABCdD --regexp --include --exclude --exclude-dir --label --max-count --after-context --before-context --context --color= --colour= --binary-files --directories",
    paths="-f --file --exclude-from",
    operands="first_text",
    texts="-ef --regexp --file",
    deep="-r --recursive -d --directories",
)
_READERS = {
    **_each("true false : echo", _reads(operands="text", is_text=True)),
    **_each("pwd who users whoami groups logname tty uptime nproc arch", _reads("-LPprs", operands="text", most=0)),
    "id": _reads("-ugnGrz --user --group --groups --name --real", operands="text"),
    **_each("uname which type basename dirname seq expr sleep", _reads("-aspPnmrivougGVz", values="-s", operands="text")),
    "printf": _reads(operands="text", only=r"(?!.*(?<!%)(?:%%)*%[^%a-zA-Z]*[hlLjztq]*n).*"),
    "date": _reads("-uRI --utc --rfc-email", values="-d --date --iso-8601= --rfc-3339", operands="text", only=r"\+.*"),
    "test": _reads("-e! -f! -d! -r! -w! -x! -s! -L! -h! -z! -n! -nt! -ot! -a! -o!", is_words=True),
    "cd": _reads(),
    **_each("cat tac", _reads("-nbsvetAETuv --number --number-nonblank --squeeze-blank --show-all", values="-s")),
    "nl": _reads("-p", values="-bfhdilnsvw"),
    **_each("head tail", _reads("-qvzfF0123456789 --quiet --silent --verbose --follow", values="-nc --lines --bytes --follow= -s")),
    "wc": _reads("-lwcmL --lines --words --bytes --chars --max-line-length"),
    "cut": _reads("-nsz --complement --only-delimited", values="-dfcb --delimiter --output-delimiter --fields --characters"),
    "tr": _reads("-cCdst --delete --complement --squeeze-repeats", operands="text"),
    "sort": _reads("-bdfgiMhnRrVcCmsuz --reverse --unique --numeric-sort --human-numeric-sort --stable --version-sort --ignore-case --check", values="-tk --field-separator --key"),
    "uniq": _reads("-cdDuiz --count --repeated --unique --ignore-case", values="-fsw --skip-fields --skip-chars --check-chars", most=1),
    "comm": _reads("-123"),
    "paste": _reads("-sz --serial", values="-d --delimiters"),
    "column": _reads("-tx --table", values="-socN --separator --output-separator"),
    "rev": _reads(),
    **_each("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum", _reads("-btz --tag --binary --text")),
    **_each("base64 base32", _reads("-di --decode --ignore-garbage", values="-w --wrap")),
    **_each("stat", _reads("-Lft --dereference --file-system --terse", values="-cf --format --printf")),
    **_each("readlink realpath", _reads("-efmnqsz --canonicalize --no-newline")),
    "file": _reads("-bihLk --brief --mime --mime-type --dereference"),
    "strings": _reads("-a", values="-net", only="[^@].*"),
    "od": _reads("-abcdfilosxv", values="-ANSjt"),
    **_each(
        "ls ll dir",
        _reads(
            "-alhtrRSFdsinog1ApCmkHBXvUGcuxZ --all --almost-all --human-readable --recursive --directory --reverse --inode --group-directories-first "
            "--full-time --size --classify --numeric-uid-gid",
            values="-Iw --color= --sort --time --format --time-style --ignore --hide --block-size --indicator-style",
            deep="-R --recursive",
            folder="children",
        ),
    ),
    "tree": _reads("-a! -d! -f! -i! -p! -s! -h! -C! -F! --dirsfirst --noreport --gitignore --prune --du", values="-L! -P! -I! --filelimit", deep=None, is_words=True),
    "du": _reads(
        "-ahsckmxbSl0 --all --summarize --human-readable --total --bytes --apparent-size --one-file-system",
        values="-dBt --max-depth --exclude --block-size --threshold",
        deep=None,
    ),
    "df": _reads("-ahHikTlPx --all --human-readable --inodes --print-type --total", values="-txB --type --exclude-type --output="),
    "free": _reads("-bkmghtwl --human --total --wide --mega --giga", values="-sc", operands="text"),
    "ps": _reads("-eAadfFlwjLTyMcx --forest --no-headers", values="-oCpqstuUGg --format --sort --pid --ppid --user --group", operands="text"),
    "diff": _reads(
        "-uNqscyibwBEZatdpTe --unified= --brief --new-file --report-identical-files --side-by-side --ignore-all-space "
        "--ignore-space-change --ignore-blank-lines --ignore-case --minimal --text --strip-trailing-cr --suppress-common-lines -0123456789",
        values="-UCIxW --unified= --context= --exclude --label --color= --width",
        folder="file",
    ),
    **_each("grep egrep fgrep", _GREP),
    "rg": _reads(
        "-inlcwvsFPxoHhaqUbIuSNp0 --hidden --no-ignore --smart-case --json --vimgrep --heading --no-heading --no-line-number --files --case-sensitive "
        "--multiline --unrestricted --ignore-case --line-number --count --count-matches --files-with-matches --files-without-match "
        "--word-regexp --invert-match --fixed-strings --only-matching --with-filename --no-filename --text --quiet --no-messages --trim --pretty "
        "--no-config --no-ignore-vcs --multiline-dotall --stats --type-list -0123456789",
        values="-egtTmABCEMrdj --regexp --glob --iglob --type --type-not --max-count --after-context --before-context --context --color --colors --sort --sortr "
        "--max-depth --max-columns --encoding --replace --threads --max-filesize",
        operands="first_text",
        texts="-e --regexp --files --type-list",
        deep=None,
    ),
    **_each(
        "fd fdfind",
        _reads(
            "-HIusigFap01ql --hidden --no-ignore --case-sensitive --ignore-case --glob --fixed-strings --absolute-path --list-details --full-path --print0 --no-ignore-vcs",
            values="-deEtScj --max-depth --min-depth --extension --exclude --type --size --color --changed-within --changed-before --max-results",
            operands="first_text",
            deep=None,
        ),
    ),
    "find": _reads(
        "-print! -print0! -ls! -prune! -depth! -mount! -xdev! -empty! -not! -and! -or! -a! -o! -readable! -writable! -executable! -true! -false! -H! -P! "
        "-noleaf! -quit! -nouser! -nogroup! -daystart! !! (! )!",
        values="-name! -iname! -path! -ipath! -wholename! -iwholename! -regex! -iregex! -lname! -ilname! -type! -xtype! -maxdepth! -mindepth! -size! -mtime! "
        "-atime! -ctime! -mmin! -amin! -cmin! -user! -group! -perm! -uid! -gid! -links! -inum! -printf! -fstype! -regextype! -newermt!",
        paths="-newer! -anewer! -cnewer! -samefile!",
        is_words=True,
        deep=None,
    ),
    "jq": _reads(
        "-rcnsSejaCMR --raw-output --compact-output --null-input --slurp --sort-keys --exit-status --join-output --ascii-output --color-output --raw-input --tab",
        values="--indent --arg! --argjson!",
        operands="first_text",
        only=r"(?!.*(?:\b(?:import|include|modulemeta|input_filename|ENV|env)\b(?<!\.env)|\$\s*(?:ENV|__loc__))).*",
    ),
    **_each("sed gsed", _reads("-nErszu --quiet --silent --regexp-extended --null-data", values="-e --expression", texts="-e --expression", operands="first_text", only=_SED)),
    **dict.fromkeys(AWK, _reads(values="-F", operands="first_text", only=_AWK)),
}
_REMOVING = "-rRfvdI --recursive --force --verbose --dir"
_WRITERS = {
    "touch": _writes("-acmh --no-create", values="-dt --date", paths="-r --reference"),
    "mkdir": _writes("-pv --parents --verbose", values="-m --mode"),
    "rmdir": _writes("-pv --parents --verbose"),
    "rm": _writes(_REMOVING, deep="-rR --recursive"),
    "unlink": _writes(),
    **_each(
        "cp mv",
        _writes(
            "-rRapfvunTdPxi --recursive --archive --force --verbose --no-clobber --update --preserve --no-dereference --no-target-directory --interactive",
            paths="-t --target-directory",
            operands="sources",
            deep=None,
        ),
    ),
    "install": _writes("-dDvpC --directory", values="-mog --mode --owner --group", paths="-t --target-directory", operands="sources"),
    "ln": _writes("-sfnvTrL --symbolic --force --no-dereference --relative --verbose", folder="tree"),
    **_each("chmod", _writes("-Rvf --recursive --verbose", operands="first_text", deep="-R --recursive")),
    "tee": _writes("-ai --append --ignore-interrupts"),
    "truncate": _writes("-co", values="-s --size"),
    **_each("gzip gunzip xz unxz bzip2 bunzip2 zstd unzstd", _writes("-dkfv123456789 --keep --force --decompress")),
}
_ABOUT_COMMITS = "--format --pretty= --author --committer --grep --since --until --after --before --date -n --max-count --skip --diff-filter --abbrev= --decorate= --color= --encoding"
_OF_DIFFS = (
    "-pustzabwRMCBDW --patch --no-patch --stat= --stat --shortstat --numstat --dirstat --summary --name-only --name-status --raw --color --no-color --cached --staged "
    "--word-diff --minimal --patience --histogram --ignore-all-space --ignore-space-change --ignore-blank-lines --check --full-index --binary --no-renames "
    "--find-renames --exit-code --quiet --merge-base --no-ext-diff --no-textconv --function-context --compact-summary --ignore-cr-at-eol -0123456789"
)
_OF_LOGS = (
    f"{_OF_DIFFS} --oneline --graph --all --decorate --no-decorate --abbrev-commit --reverse --merges --no-merges --first-parent --follow --branches --tags --remotes "
    "--topo-order --date-order --full-history --parents --children --left-right --cherry-pick --cherry-mark --boundary --no-notes --relative-date --show-pulls "
    "--walk-reflogs -gcm --cc --source -i --regexp-ignore-case --extended-regexp --fixed-strings --all-match --invert-grep"
)
_DIFF_VALUES = "-USG --unified --word-diff= --diff-algorithm --stat= --color= --inter-hunk-context --word-diff-regex --find-renames= --src-prefix --dst-prefix --color-moved= --ignore-submodules= --submodule="
_PATCHES = "-puUcmSGLW --patch --unified --cc --binary --check --word-diff --word-diff-regex --function-context"
_LOG = _reads(_OF_LOGS, values=f"{_DIFF_VALUES} {_ABOUT_COMMITS} -L", operands="git", shows=_PATCHES)
_SHOW = _reads(_OF_LOGS, values=f"{_DIFF_VALUES} {_ABOUT_COMMITS}", operands="git", shows=None)
_LISTED = "--sort --format --contains= --no-contains= --points-at --merged= --no-merged= --color= --column="
_GIT = {
    **_each("log whatchanged shortlog reflog", _LOG),
    **_each("diff show", _SHOW),
    "stash list": _LOG,
    "stash show": _SHOW,
    "status": _reads(
        "-sbuzv --short --branch --long --porcelain --ignored --show-stash --verbose --ahead-behind --renames --no-renames",
        values="--porcelain= --untracked-files= --ignored= --column= --ignore-submodules=",
        operands="git_paths",
        shows="-v --verbose",
    ),
    "blame": _reads("-lstfnepwMC --porcelain --line-porcelain --show-email --show-name --show-number --root", values="-L --date --since --abbrev", operands="git_paths"),
    "annotate": _reads(operands="git_paths"),
    "grep": _reads(
        "-inlcwvFEGPohHIzaqLW --cached --untracked --name-only --count --ignore-case --line-number --word-regexp --fixed-strings --extended-regexp --perl-regexp "
        "--files-with-matches --break --heading --all-match --no-index -0123456789",
        values="-emABC --max-depth --threads --max-count --color= --and! --or! --not!",
        operands="git",
        shows=None,
    ),
    "cat-file": _reads("-tspe", operands="git", shows=None),
    "ls-files": _reads(
        "-cdmoiskuvtz --cached --deleted --modified --others --ignored --stage --exclude-standard --full-name --directory --error-unmatch",
        values="-x --exclude --eol --abbrev=",
        operands="git_paths",
        folder="tree",
    ),
    "ls-tree": _reads("-drtlz --name-only --long --full-name --full-tree --name-status", values="--format --abbrev=", operands="text"),
    "rev-parse": _reads(
        "-q --quiet --verify --short --abbrev-ref --symbolic --symbolic-full-name --show-toplevel --show-prefix --show-cdup --git-dir --git-common-dir --absolute-git-dir "
        "--is-inside-work-tree --is-inside-git-dir --is-bare-repository --all --branches --tags --remotes --show-superproject-working-tree",
        values="--short= --abbrev-ref= --default --git-path --branches= --tags= --remotes=",
        operands="text",
    ),
    "rev-list": _reads(
        "--all --count --oneline --branches --tags --remotes --merges --no-merges --first-parent --reverse --left-right --max-parents -0123456789", values=_ABOUT_COMMITS, operands="text"
    ),
    **_each(
        "describe name-rev merge-base show-ref for-each-ref cherry count-objects var version check-ignore",
        _reads(
            "-aqvHh --all --tags --long --always --dirty --name-only --is-ancestor --fork-point --heads --branches --verify --hash --quiet --abbrev --contains --verbose "
            "--octopus --independent --non-matching",
            values="--abbrev --match --exclude --candidates --sort --count --format --dirty= --refs --contains= --merged= --no-merged= --points-at",
            operands="text",
        ),
    ),
    "branch": _reads("-arv --all --remotes --verbose --list --show-current --no-color", values=_LISTED, operands="text"),
    "tag": _reads("-ln0123456789 --list", values=_LISTED, operands="text"),
    "remote": _reads("-v --verbose", operands="text"),
    "remote get-url": _reads("--push --all", operands="text"),
    "worktree list": _reads("-vz --porcelain --verbose", operands="text"),
    "config": _reads("-lz --list --get --get-all --get-regexp --show-origin --show-scope --global --local --system --name-only", values="--type --default", operands="text"),
    "submodule status": _reads("-q --quiet --cached --recursive", operands="git_paths"),
    # what follows changes the history or the files of the repository
    "submodule update": _writes(
        "-qNf --quiet --init --recursive --remote --no-fetch --force --single-branch --progress --checkout --merge --rebase --dissociate",
        values="-j --jobs --depth",
        operands="git_paths",
        needs=("unconfined",),
    ),
    "add": _writes("-Auvnp --all --update --verbose --dry-run --intent-to-add --patch", operands="git_paths", needs=("git",)),
    "commit": _writes(
        "-aqvsp --all --quiet --verbose --signoff --allow-empty --no-edit --dry-run --allow-empty-message",
        values="-m --message --author --date --fixup --squash --trailer --cleanup",
        operands="git_paths",
        needs=("git",),
    ),
    "checkout": _writes("-bqtd --quiet --track --no-track --detach --progress --no-progress", values="-b --orphan", operands="git", needs=("git",)),
    "switch": _writes("-cqtd --quiet --track --no-track --detach --guess --no-guess", values="-c --create --orphan", operands="text", needs=("git",)),
    "restore": _writes("-SWqp --staged --worktree --quiet --ignore-unmerged", values="-s --source", operands="git_paths", folder="tree", needs=("git",)),
    "reset": _writes("-qN --soft --mixed --hard --quiet", operands="git", needs=("git",)),
    "rm": _writes("-rqn --cached --quiet --dry-run --ignore-unmatch", operands="git_paths", folder="tree", needs=("git",)),
    "mv": _writes("-vnk --verbose --dry-run", operands="git_paths", folder="tree", needs=("git",)),
    "stash": _writes("-ukqp --include-untracked --keep-index --quiet --staged", values="-m --message", operands="text", needs=("git",)),
    "merge": _writes(
        "-qv --no-ff --ff --ff-only --squash --no-commit --commit --no-edit --quiet --verbose --stat --no-stat --continue --abort --quit",
        values="-m --message",
        operands="text",
        needs=("git",),
    ),
    **_each("cherry-pick revert", _writes("-xn --no-commit --continue --abort --skip --quit --no-edit --signoff", values="-m --mainline", operands="text", needs=("git",))),
    "rebase": _writes(
        "-q --quiet --continue --abort --skip --quit --onto --autosquash --no-autosquash --keep-base --fork-point --no-fork-point --verbose --stat",
        values="--onto",
        operands="text",
        needs=("git",),
    ),
    "fetch": _writes("-qvatn --quiet --verbose --all --tags --no-tags --dry-run --progress --prune -p --append", values="-j --jobs --depth", operands="text", needs=("git", "network")),
    "pull": _writes(
        "-qvr --quiet --verbose --ff-only --ff --no-ff --rebase --no-rebase --tags --no-tags --all --autostash --no-autostash --prune --stat",
        values="--rebase= -j --jobs --depth",
        operands="text",
        needs=("git", "network"),
    ),
    "push": _writes(
        "-quvn --quiet --verbose --set-upstream --tags --follow-tags --dry-run --porcelain --all --progress --atomic --no-progress -fd --force --force-with-lease --delete --prune",
        values="--force-with-lease=",
        operands="text",
        needs=("git", "network"),
    ),
    "clone": _program("acts", "-q --quiet --progress --bare --single-branch --no-tags", values="-b --branch --depth -o --origin", only="(?!.*::).*", needs=("network",)),
}
CHANGING_GIT = MappingProxyType(
    {
        "branch": _writes("-dDmMcCfu --delete --force --move --copy --unset-upstream --track", values="--set-upstream-to", operands="text", needs=("git",)),
        "tag": _writes("-adf --annotate --delete --force", values="-m --message", operands="text", needs=("git",)),
        "config": _writes(
            "--local --add --unset",
            operands="first_text",
            only=r"(?i)user\.(?:name|email)|init\.defaultbranch|(?:pull|rebase|fetch|push|merge|color|advice|log|rerere|commit)\."
            "(?:rebase|ff|autostash|autosquash|prune|default|autosetupremote|ui|date|enabled|conflictstyle|verbose)",
            needs=("unconfined",),
        ),
    }
)
"""What subcommands of git do that only list where nothing is named: `git branch x`."""

_FORCE = "-f --force"
LOSING = MappingProxyType(
    {
        name: frozenset(options.split())
        for name, options in {
            "add": _FORCE,
            "branch": f"{_FORCE} -d --delete -D -M -C",
            "checkout": f"{_FORCE} -B -- .",
            "cherry-pick": "--abort --quit --skip",
            "commit": "--amend -n --no-verify",
            "fetch": f"{_FORCE} -p --prune -P --prune-tags --refmap --depth",
            "merge": "--abort --quit --no-verify",
            "pull": f"{_FORCE} -p --prune --no-verify",
            "push": f"{_FORCE} -d --delete --force-with-lease --force-if-includes --mirror --prune --no-verify",
            "rebase": "--abort --quit --skip",
            "reset": "--hard --merge --keep",
            "restore": "restore",
            "mv": _FORCE,
            "worktree": f"{_FORCE} remove prune",
            "update-ref": "update-ref",
            "revert": "--abort --quit --skip",
            "rm": _FORCE,
            "stash": "drop clear",
            "submodule": _FORCE,
            "switch": f"{_FORCE} --discard-changes -C --force-create",
            "tag": f"{_FORCE} -d --delete",
            "clean": "clean",
        }.items()
    }
)
"""Words with which a subcommand of git deletes or overwrites what git keeps, or skips a check: a rule by prefix names them too."""

TURNING = MappingProxyType(
    {
        name: frozenset(options.split())
        for names, options in {
            "kubectl helm": "-s --server --kubeconfig --context --kube-context --kube-apiserver --cluster --user --as --token --post-renderer",
            "cargo": "-C -Z --config --manifest-path",
            "go": "-C -exec --exec -toolexec --toolexec -vettool --vettool -overlay --overlay -modfile --modfile",
            "pip pip3 uv": "-i -f -p --python --index --index-url --default-index --extra-index-url --find-links --proxy --cert --config-file --directory --project --root",
            "poetry pdm": "-C -P --directory --project --config",
            "aws": "--endpoint-url --profile --ca-bundle",
            "gh glab": "--hostname",
            "docker podman": "-H --host --context --config",
        }.items()
        for name in names.split()
    }
)
"""Options with which a program runs another program, obeys other settings or asks another server: a rule by prefix names them too."""
STEADY_NPM = frozenset(
    """
    -s --silent -q --quiet -d --verbose --if-present -w --workspace --workspaces -ws --include-workspace-root --json -l --long --depth -a --all -y --yes
    -D --save-dev -S --save -E --save-exact -O --save-optional --no-save --omit --include --production --offline --prefer-offline --dry-run --no-audit
    --no-fund --no-progress --color --no-color --loglevel --ignore-scripts -v --version -h --help
    """.split()
)
"""Options of `npm` and its like, which read them anywhere before `--`, that do none of that. All others, and what they are cut short to, may."""


def _losing(name: str, program: Program) -> Program:
    """Return a subcommand that knows its losing options, too: they are refused by name, and not because they are unknown."""
    options = {one for one in LOSING.get(name, ()) if one.startswith("-") and one != "--"} if program.does != "reads" else set()
    return msgspec.structs.replace(program, flags=program.flags | options - program.values)


_NETWORK = _program("acts", operands="paths", needs=("network",))
_OUTSIDE = _program("acts", operands="paths", folder="tree", needs=("unconfined",))
_CODE = _program("acts", operands="paths")
_LISTING = _reads("-evq --editable --verbose --not-required --user --local --files", values="--format", operands="text")
_CURL = _program(
    "acts",
    "-sSLfvikIgG46#jN --silent --show-error --location --fail --verbose --include --insecure --head --get --compressed --globoff --no-buffer --fail-with-body "
    "--no-progress-meter --http1.1 --http2 --ipv4 --ipv6",
    values="-HXdmwAeu --header --request --data --data-raw --max-time --connect-timeout --write-out --user-agent --referer --user --retry --retry-delay --json",
    paths="-o --output",
    operands="text",
    needs=("network",),
)

PROGRAMS = MappingProxyType(
    {
        **_READERS,
        **_WRITERS,
        **{f"git {name}": _losing(name, program) for name, program in _GIT.items()},
        "curl": _CURL,
        "wget": _program(
            "acts",
            "-qcSN --quiet --no-verbose -nv! --spider",
            values="-Tt --timeout --tries --header",
            paths="-OP --output-document --directory-prefix",
            operands="text",
            needs=("network",),
        ),
        **_each(
            """
            gh glab ssh scp sftp rsync ftp lftp ping dig nslookup host whois traceroute nmap aws gcloud az heroku flyctl fly vercel netlify wrangler firebase supabase railway doctl terraform tofu
            terragrunt pulumi helm pipx huggingface-cli hf kaggle gsutil twine nc ncat netcat telnet grpcurl websocat ab wrk hey redis-cli psql pg_dump pg_restore pg_isready createdb dropdb mysql
            mysqldump mysqladmin mariadb mongosh mongo mongodump mongorestore cqlsh clickhouse-client ansible ansible-playbook ansible-galaxy vault consul nomad argocd flux istioctl http https xh xhs
            """,
            _NETWORK,
        ),
        **_each(
            """
            docker podman nerdctl docker-compose podman-compose kubectl minikube kind systemctl service launchctl apt apt-get dnf yum pacman brew snap journalctl vagrant crontab at batch systemd-run
            busctl gdbus dbus-send loginctl hostnamectl timedatectl notify-send
            """,
            _OUTSIDE,
        ),
        **_each("sudo su doas pkexec", _OUTSIDE),
        "env": _reads(operands="text"),
        "hostname": _reads("-fsi", operands="text", most=0),
        **_each("printenv ldd", _program("acts", operands="text")),
        "ruff format --check": _reads("-q --quiet --diff --preview", values="--line-length --target-version"),
        "ruff format --diff": _reads("-q --quiet --check --preview", values="--line-length --target-version"),
        "ruff check --no-fix": _reads("-q --quiet --diff --preview --statistics", values="--select --ignore --extend-select --output-format= --line-length"),
        **_each(
            """
            make gmake just task ninja cmake pytest tox nox ruff black isort mypy pyright flake8 pylint coverage cargo rustc go gofmt gcc g++ clang cc c++ tsc
            eslint prettier jest vitest mocha node deno bun ts-node tsx npm npx yarn pnpm pip pip3 uv uvx poetry pipenv pdm hatch rye python ruby perl php lua rake bundle
            gradle gradlew mvn dotnet java javac kotlin swift mix elixir ghc cabal stack zig sh bash zsh dash pre-commit alembic django-admin flask uvicorn sphinx-build
            mkdocs rspec rubocop phpunit composer rscript julia luajit ipython
            """,
            _CODE,
        ),
        **{f"{pip} {name}": _NETWORK for pip in ("pip", "pip3") for name in "install download wheel index search".split()},
        **{f"{pip} {name}": _LISTING for pip in ("pip", "pip3") for name in "list show freeze check".split()},
        **{f"npm {name}": _NETWORK for name in "install i ci add update outdated publish audit view login".split()},
        **{f"{manager} {name}": _NETWORK for manager in ("yarn", "pnpm", "bun") for name in "install add up update upgrade publish dlx".split()},
        **{f"uv {name}": _NETWORK for name in "sync add remove lock pip tool publish build venv python".split()},
        **{f"uv pip {name}": _CODE for name in "list show freeze check tree".split()},
        **{f"{name} {act}": _CODE for name in ("terraform", "tofu") for act in ("fmt", "version", "validate")},
        **{f"helm {act}": _CODE for act in ("template", "lint", "version", "package", "create")},
        **{f"bundle {name}": _NETWORK for name in "install update add outdated".split()},
        **{f"composer {name}": _NETWORK for name in "install update require create-project outdated audit".split()},
        **{f"gem {name}": _NETWORK for name in "install update push fetch".split()},
        **{f"mix {name}": _NETWORK for name in "deps.get deps.update hex.publish".split()},
        **{f"dotnet {name}": _NETWORK for name in "restore add nuget".split()},
        **{f"poetry {name}": _NETWORK for name in "install add update lock publish".split()},
        **{f"{manager} {name}": _NETWORK for manager in ("conda", "mamba", "micromamba") for name in "install create update search".split()},
        **{f"rustup {name}": _NETWORK for name in "update install toolchain component target".split()},
        **{f"dvc {name}": _NETWORK for name in "pull push fetch".split()},
        **{f"cargo {name}": _NETWORK for name in "install add update publish fetch search".split()},
        **{f"go {name}": _NETWORK for name in "get install mod".split()},
    }
)
"""What is known of a program, by its name, or by its name and its subcommand."""

SUBCOMMANDS = MappingProxyType(
    {
        **dict.fromkeys(
            "git ruff docker podman kubectl cargo go pip pip3 npm pnpm yarn uv poetry pipenv pdm dotnet helm terraform tofu brew apt apt-get systemctl composer bundle mix alembic conda mamba micromamba rustup dvc gem".split(), 1
        ),
        **dict.fromkeys("gh glab aws az".split(), 2), "gcloud": 3,
    }
)
"""Programs whose rules name a subcommand, and how many words it has. Those that name a script or another program are in RUNNERS."""
RUNNERS = MappingProxyType(
    {
        **dict.fromkeys("npx uvx bunx pnpx".split(), ()),
        **{f"{name} run": () for name in "uv poetry pipenv pdm hatch rye".split()},
        **{f"{name} exec": () for name in "bundle pnpm npm".split()},
        **{f"{name} run": () for name in "npm pnpm yarn bun deno just task".split()},
        **{f"uv {name}": () for name in "pip tool python".split()},
        "go mod": (),
        **{f"docker {name}": () for name in "compose container image network volume system builder context plugin config".split()},
    }
)
"""Programs whose rules name what follows them too: a package, a script, a program, or a subcommand of the subcommand."""
INTERPRETERS = frozenset("python pypy ipython node nodejs deno bun ts-node tsx ruby perl php lua luajit rscript julia sh bash zsh dash ksh fish pwsh".split())
"""Programs that run code: a rule names the file or the module."""
MODULE_RUNNERS = frozenset({"python", "pypy"})
"""Interpreters with `-m MODULE`."""
SHELLS = frozenset("sh bash dash zsh ksh ash rbash fish pwsh".split())
CODE_OPTIONS = frozenset("-c -e -E -p -r -pe -ne --eval --print --command --call".split())
"""Options of interpreters, and of `npx`, whose value is code."""
TARGETS = frozenset("make gmake just task ninja rake invoke inv".split())
"""Programs that carry out each of their operands: a rule names them all."""
WRAPPERS = frozenset(
    program_name(one)
    for one in """
    sudo su doas pkexec env timeout gtimeout nice ionice nohup setsid stdbuf time xargs parallel exec eval command builtin busybox watch entr flock chroot chrt
    taskset strace ltrace script ssh sem unshare nsenter runuser trap . source coproc caffeinate systemd-run unbuffer chronic at batch screen tmux
    tar bsdtar gtar zip cpio pax 7z 7za rsync rename man less more vi vim nvim emacs ed ex gdb lldb run-parts logrotate hyperfine perf let fc m4 dc
    sqlite3 psql mysql expect socat nc ncat telnet crontab
    """.split()
)
"""Programs that start what their words or settings name, carry out a text, or read files that nothing names: no rule by prefix allows one."""
SEARCHING = frozenset("ag ack ug ugrep rga pt sift semgrep gitleaks trufflehog detect-secrets codespell typos ctags cloc tokei scc".split())
"""Programs that read all that lies in their folder, where no word names a file."""
# fmt: on
