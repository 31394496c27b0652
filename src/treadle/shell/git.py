"""What is known of the subcommands of git: which only read, and which options write, run or show what stands in files. Data only."""

from types import MappingProxyType

from treadle.shell.describing import GREP_FLAGS, program, reader, searcher

__all__ = [
    "ABOUT_LISTS",
    "ADDING",
    "ASKING_FOR_LISTS",
    "BEFORE_SUBCOMMAND",
    "BY_OBJECT",
    "GIT",
    "LISTING",
    "LOSING",
    "PLAIN_GIT",
    "SHOWING_GIT",
]

_DIFF = "--output --ext-diff --textconv --show-signature --help -O"
_SEARCH = ["-S", "-G"]
"""Options with which git finds the changes of a text: which ones are found says what stands in files."""
_PATCH = (
    """
    -p -u -U -c -m -L --patch --unified --cc --dd --remerge-diff --diff-merges --binary --patch-with-stat --patch-with-raw
""".split()
    + _SEARCH
)
"""Options with which git shows what stands in files, beside who changed them when."""
_HUNKS = ["-p", "--patch", "-i", "--interactive"]
"""Options with which git shows each change, and asks about it."""
_ABOUT = "--format= --pretty= --author --committer --grep --since --until --after --before --date -S -G --src-prefix --dst-prefix"
"""Options of git whose value is about the commits that are shown, and no path."""
_SIGNING = "-S --gpg-sign --verify-signatures"
"""Options with which git starts the program that signs, or checks signatures."""
_FETCHING = "--depth --deepen --shallow-since --shallow-exclude -j --jobs --refmap"
"""Options with which git fetches, whose value is not a repository."""
_GIT_READERS = {
    "blame": reader(f"{_DIFF} --contents --ignore-revs-file -S"),
    "cat-file": reader("--textconv --filters --help", recursive=None, revisions=True),
    "count-objects": reader("--help"),
    "check-ignore": reader("--help"),
    "cherry": reader("--help", operands="text"),
    "describe": reader("--help", operands="text"),
    "diff": reader(plain=_ABOUT, risky=_DIFF, recursive=None, revisions=True),
    "for-each-ref": reader("--shell --perl --python --tcl --help", operands="text"),
    "grep": searcher(
        "-O --open-files-in-pager --ext-grep --textconv --help -f",
        operands="first_text",
        texts="-e",
        flags=GREP_FLAGS,
        revisions=True,
    ),
    "log": reader(plain=_ABOUT, risky=_DIFF, folder="tree", recursive=_PATCH, revisions=True),
    "ls-files": reader("--help -X --exclude-from", folder="tree"),
    "ls-tree": reader("--help", folder="tree"),
    "merge-base": reader("--help", operands="text"),
    "name-rev": reader("--help", operands="text"),
    "rev-list": reader(f"{_DIFF} --use-bitmap-index"),
    "rev-parse": reader("--help --parseopt --sq-quote"),
    "reflog": reader(plain=_ABOUT, risky=f"{_DIFF} expire delete drop write", recursive=_PATCH, revisions=True),
    "remote get-url": reader(operands="text"),
    "shortlog": reader(plain=_ABOUT, risky=_DIFF, recursive=_SEARCH, revisions=True),
    "show": reader(plain=_ABOUT, risky=_DIFF, recursive=None, revisions=True),
    "show-ref": reader("--help --exclude-existing", operands="text"),
    "stash list": reader(plain=_ABOUT, risky=_DIFF, recursive=_PATCH, revisions=True),
    "stash show": reader(plain=_ABOUT, risky=_DIFF, recursive=None, revisions=True),  # a patch with most options
    "status": reader("--help", recursive=["-v", "--verbose"]),
    "version": reader("--help"),
    "whatchanged": reader(plain=_ABOUT, risky=_DIFF, folder="tree", recursive=_PATCH, revisions=True),
    "worktree list": reader(operands="text"),
}
_GIT_WRITERS = {
    "add": program("--pathspec-from-file --help -e --edit", recursive=_HUNKS),
    **dict.fromkeys(
        "checkout mv reset restore rm switch".split(), program("--pathspec-from-file --help", recursive=_HUNKS)
    ),
    "branch": program("--edit-description -e --help -F"),
    **dict.fromkeys("notes worktree symbolic-ref update-ref".split(), program("--edit-description -e --help -F")),
    "stash": program(f"{_DIFF} --pathspec-from-file", recursive=["-p", "--patch"], revisions=True),
    "tag": program("--edit -e --help -F --file -s --sign -u --local-user -v --verify"),
    "commit": program(
        f"-F --file -t --template --help -c -C -e --edit --pathspec-from-file {_SIGNING}",
        recursive=[*_HUNKS, "-v", "--verbose"],
    ),
    "fetch": program(
        "--upload-pack -u --negotiation-tip --recurse-submodules --help --server-option -o", texts=_FETCHING
    ),
    "merge": program(f"-s --strategy -X --help -F --file {_SIGNING}"),
    "pull": program(
        f"--upload-pack -s --strategy -X -r --rebase --help --recurse-submodules {_SIGNING}", texts=_FETCHING
    ),
    "push": program("--receive-pack --exec --help --recurse-submodules -o --push-option --signed --repo"),
    "cherry-pick": program(f"-e --edit -s --strategy -X --help {_SIGNING}"),
    "revert": program(f"-e --edit -s --strategy -X --help {_SIGNING}"),
}
"""Not here, so asked about: what runs commands or fetches settings (bisect, clone, config, difftool, filter-branch, rebase, submodule)."""

PLAIN_GIT = frozenset(
    {*_GIT_READERS, *_GIT_WRITERS}
    | set(
        """
        apply am archive bundle check-attr check-ignore check-mailmap check-ref-format cherry clean clone commit-tree config diff-files
        diff-index diff-tree format-patch fsck gc hash-object init interpret-trailers ls-remote maintenance merge-file merge-tree mktree
        pack-refs patch-id prune range-diff read-tree remote repack replace show-branch show-ref sparse-checkout stripspace update-index
        var verify-pack write-tree
        """.split()
    )
)
"""Subcommands of git that start nothing but git, without their own options to do so."""

GIT = MappingProxyType({**_GIT_READERS, **_GIT_WRITERS})

ADDING = frozenset({"add", "commit", "fetch"})
"""Subcommands that take nothing away, with whatever options a rule by prefix covers: none of `LOSING`."""
_FORCE = "-f --force"
_DELETE = "-d --delete"
_STOPPING = "--abort --quit --skip"
_FETCHED = f"{_FORCE} -p --prune -P --prune-tags --depth --shallow-since --shallow-exclude --update-shallow --update-head-ok --refmap --stdin"
LOSING = MappingProxyType(
    {
        name: frozenset(options.split())
        for name, options in {
            "add": _FORCE,
            "branch": f"{_FORCE} {_DELETE} -D -M -C",
            "checkout": f"{_FORCE} -B -- .",
            "clean": "",
            "cherry-pick": _STOPPING,
            "commit": "--amend -n --no-verify",
            "fetch": _FETCHED,
            "merge": f"{_STOPPING} --no-verify",
            "mv": _FORCE,
            "notes": f"{_FORCE} remove prune",
            "pull": f"{_FETCHED} --no-verify",
            "push": f"{_FORCE} {_DELETE} --force-with-lease --force-if-includes --mirror --prune --no-verify",
            "reset": "--hard --merge --keep",
            "restore": "",
            "revert": _STOPPING,
            "rm": _FORCE,
            "stash": "drop clear",
            "switch": f"{_FORCE} --discard-changes -C --force-create",
            "symbolic-ref": _DELETE,
            "tag": f"{_FORCE} {_DELETE}",
            "update-ref": "-d --stdin",
            "worktree": f"{_FORCE} remove prune -B",
        }.items()
    }
)
"""Options and words with which a subcommand deletes or overwrites what git keeps, or passes over ignored files and hooks."""
LISTING = MappingProxyType(
    {
        "branch": frozenset(
            """
            -a -r -v -vv -av -avv --all --remotes --verbose --list -l --show-current --merged --no-merged --no-color
            """.split()
        ),
        "remote": frozenset(["-v", "--verbose"]),
        "tag": frozenset(["-l", "--list", "-n"]),
    }
)
"""Subcommands that change nothing when all that follows them is listed here."""
ABOUT_LISTS = (
    "--sort=",
    "--format=",
    "--contains=",
    "--no-contains=",
    "--points-at=",
    "--merged=",
    "--no-merged=",
    "--color=",
    "--column=",
)
"""How further options begin that `git branch` and `git tag` take when they list something."""
ASKING_FOR_LISTS = MappingProxyType(
    {
        "branch": frozenset(["--list", "--contains", "--no-contains", "--points-at"]),
        "tag": frozenset(["-l", "--list", "--contains", "--no-contains", "--points-at"]),
    }
)
"""Options with which these list what the other words name, and create nothing: `git tag --list 'v*'`. `git branch -l x` once created `x`."""
SHOWING_GIT = frozenset(
    "archive bundle fast-export format-patch diff-files diff-index diff-tree range-diff merge-tree difftool request-pull worktree".split()
)
"""Subcommands of git that show or copy what stands in files that no word names."""
BEFORE_SUBCOMMAND = frozenset("--no-pager -P --no-optional-locks".split())
"""Options before the subcommand that change nothing in what it reads or runs."""
BY_OBJECT = frozenset(
    "archive cat-file checkout diff grep merge-file notes read-tree replace reset restore show update-index".split()
)
"""Subcommands that show or copy what has a number of git's own (`b5f1e4d`), which may be any file of the history."""
