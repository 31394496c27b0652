"""What is known of common programs: which only read, which start others, and which options write, run or read settings. Data only.

A program that is not here is not known: a person may allow it by name, and every path among its arguments counts as written.
The lists of options come from the programs' own manuals; they forbid what a rule such as `git log:*` would otherwise let in.
"""

import posixpath
import re
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, Literal

import msgspec

__all__ = [
    "ABOUT_LISTS",
    "ADDING",
    "AMBIGUOUS_OPTIONS",
    "ASKING_FOR_LISTS",
    "BEFORE_SUBCOMMAND",
    "BY_OBJECT",
    "EVALUATING",
    "GIT",
    "GREP_FLAGS",
    "INTERPRETERS",
    "LISTED",
    "LISTING",
    "LISTING_OPTIONS",
    "LOSING",
    "OPAQUE",
    "PLAIN_GIT",
    "PROGRAMS",
    "READABLE_SHELLS",
    "RUNNING_OPTIONS",
    "SELF_DESCRIBING",
    "SETTING",
    "SHELLS",
    "SHOWING_GIT",
    "SUBCOMMANDS",
    "SUFFIXED",
    "TEXT_PROGRAMS",
    "UNPACKERS",
    "WRAPPERS",
    "Program",
    "cuts_short",
    "has_option",
    "is_known",
    "program",
    "program_name",
    "reader",
    "searcher",
]


# --- Describing: the form in which the tables of programs say what is known of one. Knows no program.

GREP_FLAGS = """
    -i -n -l -c -w -v -s -F -E -G -P -x -o -r -R -H -h -z -a -q -L -U -b -I --recursive --dereference-recursive --ignore-case
    --line-number --files-with-matches --count --word-regexp --invert-match --fixed-strings --extended-regexp --perl-regexp
    --only-matching --with-filename --no-filename --text --quiet --no-messages
"""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One program, or one subcommand of it."""

    reads_only: bool = False
    """Whether it changes nothing as long as none of its `risky` options is given."""
    risky: frozenset[str] = frozenset()
    """Options that write a file, start a program or read settings from one: `--output`, `-o`. A long one also counts by its beginnings.
    `@`: it takes more options from a file `@FILE`. One without a sign is a word that does so: `run`."""
    style: str = "gnu"
    """`gnu`: short options may be joined (`-xo`), long ones cut short. `words`: an option is one whole word (`-exec`). `letters`: as `gnu`, and
    of a long one only the letters count, up to a dot (`--outputFile.json` is `--output-file`)."""
    max_operands: int | None = None
    """Further operands are files that it writes (`uniq IN OUT`), and so is what looks like an option behind an operand; None for no such rule."""
    operands: str = "paths"
    """`paths`: each operand may be a path. `first_text`: the first is a pattern or script. `text`: none is a path."""
    texts: frozenset[str] = frozenset()
    """Options whose value is text and no path or operand: `-n`, `--format`."""
    plain: frozenset[str] = frozenset()
    """Options whose value is never a path, whatever stands in it: `cut -d /`. One with `=` takes it behind this sign only: `--format=`."""
    recursive: frozenset[str] | None = frozenset()
    """Options with which it goes through whole folders, and where no path is given through the one it is in; None if it always does."""
    revisions: bool = False
    """Whether an operand may be a revision, so that only what follows `--` or a colon surely is a path: `git diff main`."""
    flags: frozenset[str] = frozenset()
    """Of one that may go through folders: its options without a value. What follows another option may be its value, and no path."""
    folder: Literal["itself", "children", "tree"] = "tree"
    """What it reaches of a folder that it is given, where it does not go through all of it."""
    follows: frozenset[str] | None = None
    """Options with which it follows the links in folders that it goes through; None if it may always do so."""


# Any: the fields of a Program; `convert` checks them.
def program(risky: str = "", *, texts: str = "", flags: str = "", plain: str = "", **settings: Any) -> Program:
    """Describe a program that may change something."""
    words = {"risky": risky.split(), "texts": texts.split(), "flags": flags.split(), "plain": plain.split()}
    return msgspec.convert({**words, **settings}, Program)


def reader(risky: str = "", *, texts: str = "", **settings: Any) -> Program:
    """Describe a program that reads the files it is given, and of a folder nothing."""
    return program(risky, texts=texts, reads_only=True, **{"folder": "itself", **settings})


def searcher(risky: str = "", *, texts: str = "", follows: str = "", **settings: Any) -> Program:
    """Describe a program that goes through whole folders."""
    reached = {"recursive": None, "follows": follows.split(), **settings}
    return program(risky, texts=texts, reads_only=True, **reached)


def has_option(argument: str, wanted: Iterable[str]) -> bool:
    """Whether an argument is one of some options: a short one also among others, a long one also cut short."""
    name = argument.partition("=")[0]
    if name.startswith("--"):
        return name != "--" and any(one.startswith(name) for one in wanted)
    return argument in wanted or (
        argument.startswith("-") and any(len(one) == len("-x") and one[1] in argument[1:] for one in wanted)
    )


def cuts_short(name: str, options: Iterable[str], *, but: frozenset[str] = frozenset()) -> bool:
    """Whether a name is one of some options, cut short so that it is hardly another option: `--files0-fr`, `--exe`."""
    if len(name) <= len("--x") or not name.startswith("-") or name in but:
        return False
    return any(option.startswith(name) and ("-" in name[2:]) >= ("-" in option[2:]) for option in options)


# --- What is known of the subcommands of git: which only read, and which options write, run or show what stands in
# files. Data only.

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


# --- What is known of common programs: which only read, which start others, and which options write, run or read
# settings. Data only.

_VERSION = re.compile(r"[-.]?\d+(\.\d+)*$")


def program_name(word: str) -> str:
    """Return a program's plain name: no folder and no version (`/usr/bin/python3.11` is `python`)."""
    name = posixpath.basename(word)
    return (_VERSION.sub("", name) or name).lower()


_LESS_KNOWN = frozenset(
    """
    hyperfine perf rr heaptrack uftrace gosu su-exec setuidgid envuidgid softlimit setlock daemon cpulimit eatmydata faketime nocache trickle
    tsocks torify fakechroot minijail nsjail sandbox-exec dtruss autossh mosh rsh rlogin pdsh pssh clush mpirun mpiexec srun sbatch qsub
    torchrun watchmedo watchfiles onchange npm-run-all run-s run-p reflex overmind hivemind supervisord circusd tmuxinator zellij dtach
    abduco asciinema xdg-open gio wsl cmd chamber envchain infisical catchsegv retry xe docker-compose podman-compose crun runc ctr lima
    limactl multipass colima op debugpy py-spy kernprof viztracer
    """.split()
)
"""Further ones, of which it is not known how they read the words that they start."""
WRAPPERS = _LESS_KNOWN | frozenset(
    """
    ash bwrap builtin busybox chpst chroot chrt chronic command conda coproc daemonize dbus-run-session devcontainer direnv
    distrobox docker doas dumb-init entr env eval exec fakeroot firejail flatpak flock git-shell hatch history ionice kubectl ld.so
    ld-linux-x86-64.so linux32 linux64 ltrace machinectl mise nerdctl newgrp nice nix nix-shell nohup npx nsenter numactl
    parallel pdm pipenv pipx pkexec podman poetry prlimit proot pueue rlwrap rtx runcon runuser s6-setuidgid schroot script
    sem setarch setpriv setsid sg source sshpass ssh start-stop-daemon stdbuf strace su sudo systemd-nspawn systemd-run
    taskset tee-exec time timeout tini tmux toybox trap tsp unbuffer unshare uvx valgrind watch watchexec xargs xvfb-run yarnpkg
    zsh-exec bunx at batch crontab screen nc ncat socat telnet . bind complete compgen enable hash alias mapfile readarray fc let
    uv rye rbenv pyenv asdf volta corepack bundle nyc c8 cross-env dotenv doppler aws-vault envdir nodemon concurrently honcho foreman
    pm2 pnpx ldd gtimeout gnice genv gxargs ccache sccache distcc bear caffeinate systemd-inhibit cgexec run0 torsocks proxychains mono
    wine oc k3s lxc incus buildah vagrant minikube
    """.split()
)
"""Programs and builtins that start what their arguments name, here or elsewhere."""

INTERPRETERS = frozenset(
    """
    sh bash dash zsh fish ksh mksh csh tcsh rbash pwsh powershell nu xonsh elvish python pypy ipython perl raku ruby irb jruby
    node nodejs deno bun ts-node tsx php lua luajit tclsh wish expect awk gawk mawk nawk original-awk osascript r rscript julia
    ghci runghc runhaskell scala groovy jshell java kotlin clojure bb guile racket sbcl ocaml swipl gdb lldb sqlite psql mysql
    mariadb mongosh redis-cli ed ex vi vim nvim view vimdiff emacs emacsclient nano pico joe less more most man info m4 dc bc
    make gmake just task ninja cmake gcc cc clang sed gsed tar rsync scp sftp curl wget rename prename file-rename perl-rename gnuplot
    octave lftp ftp fzf pandoc rake ant sbt lein scons waf mage earthly inv fab ansible ansible-playbook exiftool magick convert mogrify
    identify montage composite rustc g++ c++ clang++ tcc ld cpp gfortran nvcc nasm yasm tex latex pdftex pdflatex xelatex lualatex latexmk
    gs ghostscript groff troff xsltproc gimp inkscape soffice libreoffice blender streamlit gunicorn uvicorn flask celery jupyter papermill
    bpython ptpython duckdb cqlsh sqlcmd sqlplus usql pgcli mycli litecli lynx links elinks w3m aria2c http https xh wget2 rclone restic
    mail mailx mutt sendmail msmtp terraform terragrunt pulumi
    """.split()
)
"""Programs that carry out a text of their own: a script, a configuration, a program in an argument, or a transfer that these rules
do not read. Only a rule that names the whole command allows one."""

READABLE_SHELLS = frozenset("sh bash rbash dash ash ksh mksh".split())
"""Shells whose `-c` text is read here as bash reads it."""
SHELLS = READABLE_SHELLS | frozenset("zsh fish csh tcsh pwsh powershell nu xonsh elvish hatch git-shell".split())
"""Shells: they start whatever their text, their script or their input says."""
OPAQUE = frozenset(
    """
    xargs parallel sem trap bind complete compgen enable alias hash mapfile readarray source . script at batch crontab screen tmux
    entr watch watchexec history ssh sshpass su sg runuser newgrp pueue nc ncat socat telnet expect gdb lldb m4 dc ed ex vi vim nvim view
    vimdiff emacs emacsclient sqlite fc let run-parts logrotate
    """.split()
)
"""Programs that start what their input, their settings or their joined words say: their words do not name it."""
EVALUATING = frozenset("test [".split())
"""Builtins that look at variables: they carry out what stands in a subscript, such as `a[$(id)]` or `a[PATH=1]`, in single quotes too."""
SETTING = frozenset("export declare typeset readonly local read getopts unset".split())
"""Builtins that set or unset variables, such as `PATH`, for the commands after them. The reader knows most of them by their form, but not in quotes."""
TEXT_PROGRAMS = frozenset("sed gsed awk gawk mawk nawk original-awk".split())
"""Interpreters whose programs are short and stand in the line."""
RUNNING_OPTIONS = frozenset(
    """
    --ext-diff --textconv --upload-pack --receive-pack --exec --exec-batch --open-files-in-pager --compress-program --filter
    --to-command --checkpoint-action --use-compress-program --rsh --rsync-path -toolexec -vettool --script-shell --unzip-command
    -TT --pre --config-env --exec-path --pager --editor --shell-emulator --node-options --eval --config --tree-filter
    --index-filter --msg-filter --env-filter --info-script --new-volume-script --preview --sendmail-cmd --extcmd
    --use-askpass --plugin --run-under --run_under --post-renderer --init-script --photo-viewer --extract-with --pre-invoke
    --post-invoke --init-hook --shell-command --on-change
    """.split()
)
"""Options that start a program, or read settings that may."""
AMBIGUOUS_OPTIONS = frozenset("--config --filter --text --ext".split())
"""Those of them that mean something harmless to most programs that are not known here."""

_GREP_RECURSES = ["-r", "-R", "-d", "--recursive", "--dereference-recursive", "--directories"]
_RG_FLAGS = """
    -i -n -l -c -w -v -s -F -P -x -o -H -h -a -q -L -U -b -I -u -S -N -p -0 --hidden --no-ignore --smart-case --json --vimgrep --heading
    --no-heading --no-line-number --files --case-sensitive --follow --multiline --unrestricted --ignore-case --line-number --count
    --files-with-matches --word-regexp --invert-match --fixed-strings --only-matching --with-filename --no-filename --text --quiet --no-messages
"""
"""Without `-E` and `-r`, which take a value."""


def _grep() -> Program:
    return program(
        "-f --file --exclude-from",
        operands="first_text",
        texts="-e --regexp -f --file",
        plain="-e --regexp --include --exclude --exclude-dir --label -m -A -B -C",
        reads_only=True,
        recursive=_GREP_RECURSES,
        follows=["-R", "--dereference-recursive"],
        flags=GREP_FLAGS,
        folder="itself",
    )


SUBCOMMANDS = MappingProxyType({"git": GIT})
"""Programs that are judged by their subcommand. One that is not listed may be an alias for any command."""

# Any: fields of a Program.
_SEARCHING: dict[str, Any] = {
    "recursive": None,
    "operands": "first_text",
    "texts": "-e -f -g --regexp --file --match --pattern --files",
}

PROGRAMS = MappingProxyType(
    {
        **dict.fromkeys("true false pwd : which tr whoami groups logname tty".split(), reader(operands="text")),
        **dict.fromkeys(
            "echo basename dirname seq expr sleep arch cal factor free getconf nproc type uname uptime".split(),
            reader(operands="text"),
        ),
        **dict.fromkeys(
            "cat tac head tail fold nl rev comm cmp stat readlink realpath "
            "sum od hexdump expand unexpand pr fmt tsort numfmt df hexyl test cd who users".split(),
            reader(),
        ),
        **dict.fromkeys("base32 base64 basenc".split(), reader("-o --output")),
        **dict.fromkeys(["zcat", "bzcat"], reader(recursive=["-r", "--recursive"])),
        "whereis": reader("-B -M -S", operands="text"),
        "column": reader(plain="-s -o --separator --output-separator", flags="-t -x"),
        "cut": reader(
            plain="-d -f -c -b --delimiter --output-delimiter --fields",
            flags="-n -s -z --complement --only-delimited --zero-terminated",
        ),
        "join": reader(
            plain="-t -e -o -1 -2 -a -v -j", flags="-i -z --ignore-case --header --check-order --nocheck-order"
        ),
        "paste": reader(plain="-d --delimiters", flags="-s -z --serial --zero-terminated"),
        "strings": reader("@"),
        **dict.fromkeys(
            "md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum".split(), reader("-c --check")
        ),
        **dict.fromkeys(
            "ls ll dir vdir".split(),
            reader(
                folder="children",
                recursive=["-R", "--recursive"],
                follows=["-L", "--dereference"],
                flags="-R -a -A -l -h -t -r -S -F -d -s -i -n -g -o -p -1 --recursive --all --almost-all --human-readable",
            ),
        ),
        "diff": reader("--to-file --from-file -l --paginate", folder="children", recursive=["-r", "--recursive"]),
        "du": searcher(
            follows="-L --dereference",
            risky="--files0-from -X --exclude-from",
            flags="-a -h -s -c -k -m -x -b -L -S --all --summarize --human-readable",
        ),
        **dict.fromkeys("grep egrep fgrep".split(), _grep()),
        "fd": searcher(
            "-x --exec -X --exec-batch --ignore-file",
            operands="first_text",
            follows="-L --follow",
            flags="-H -I -u -s -i -g -F -a -l -L -p -0 -1 -q --hidden --no-ignore --glob --absolute-path --follow",
        ),
        "file": reader(
            "-C --compile -f --files-from -m --magic-file -p --preserve-date -Z -z --uncompress --uncompress-noreport"
        ),
        "find": searcher(
            "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from",
            style="words",
            follows="-L -follow",
        ),
        "jq": reader(
            "-f --from-file -L --library-path --rawfile --slurpfile --argfile -i",
            operands="first_text",
            flags="-r -c -n -s -e -S -j -a -C -M -R --raw-output --compact-output --null-input --slurp --sort-keys --exit-status",
        ),
        "printenv": program(operands="text"),
        "printf": reader("-v", operands="text"),
        "rg": searcher(
            "--pre --hostname-bin -z --search-zip -f --file --ignore-file --pre-glob",
            operands="first_text",
            texts="-e --regexp -f --file --files",
            plain="-e --regexp -g --glob --iglob -t -T --type",
            follows="-L --follow",
            flags=_RG_FLAGS,
        ),
        "sort": reader(
            plain="-t -k --field-separator --key",
            flags="-b -d -f -g -i -M -h -n -R -r -V -c -C -m -s -u -z --reverse --unique --numeric-sort --human-numeric-sort --stable",
            risky="-o --output --compress-program -T --temporary-directory --files0-from --random-source",
        ),
        "tree": searcher(
            "-o --fromfile --fromtabfile --gitfile --infofile -R",
            follows="-l",
            flags="-a -d -f -i -l -x -p -s -h -D -C -n -F -u -g -r -t",
        ),
        "uniq": reader(
            max_operands=1,
            texts="-f -s -w --skip-fields --skip-chars --check-chars",
            flags="-c -d -D -u -i -z --count --repeated --unique",
        ),
        "wc": reader("--files0-from"),
        "xxd": reader(
            "-r -revert --revert", max_operands=1, texts="-c -g -l -o -s -n -R", flags="-a -b -C -e -E -i -p -u"
        ),
        **dict.fromkeys("cp mv ln".split(), program("-t --target-directory --backup -S --suffix")),
        "install": program("-t --target-directory --strip-program --backup -S --suffix"),
        **dict.fromkeys(["rm", "rmdir"], program(follows=[])),
        "split": program("--filter --additional-suffix"),
        "dd": program(style="words"),
        "go": program(
            "-exec -toolexec -vettool -overlay -modfile -C -o -w -ldflags -gcflags -asmflags -gccgoflags -compiler "
            "-c -coverprofile -cpuprofile -memprofile -blockprofile -mutexprofile -trace -outputdir -pkgdir run generate tool",
            style="words",
        ),
        "cargo": program(
            "+ --config --manifest-path -Z -C --target-dir --out-dir --artifact-dir --open run r watch install vendor rustc"
        ),
        "npm": program(
            "--prefix --script-shell --node-options --userconfig --globalconfig -C --git --shell --editor --viewer --node-gyp --python "
            "--init-module --onload-script exec exe x explore explor explo expl edit edi ed init ini create creat crea cre cr innit set "
            "config confi conf con c -c --call"
        ),
        "pnpm": program("--prefix --script-shell --node-options -C --dir --shell-emulator exec dlx create config env"),
        "yarn": program("--cwd --use-yarnrc --script-shell exec dlx node config create set"),
        "pytest": program(
            "-p -c --config-file --rootdir --confcutdir -o --override-ini --basetemp --junitxml --junit-xml --pdbcls --pastebin --debug "
            "--tx --px --rsyncdir --report-log --log-file --resultlog --html --csv --md --excelreport --template --json-report-file --alluredir "
            "--benchmark-json --benchmark-save --benchmark-storage --benchmark-histogram --store-durations --cov-config --inifile --profile-svg "
            "--snapshot-update @",
            style="letters",
        ),
        "ruff": program("--config --cache-dir --output-file -o --fix --fix-only --add-noqa server @"),
        "mypy": program(
            "--config-file --python-executable --cache-dir --junit-xml --install-types --any-exprs-report --cobertura-xml-report --html-report "
            "--shadow-file --custom-typeshed-dir --linecount-report --linecoverage-report --lineprecision-report --txt-report --xml-report --xslt-html-report --xslt-txt-report @"
        ),
        "black": program("--config"),
        "isort": program("--settings-path --settings-file --sp"),
        "pylint": program("--init-hook --load-plugins --rcfile --output"),
        "flake8": program("--config --append-config --output-file"),
        **dict.fromkeys(
            ["pip", "pip3"],
            program(
                "--python --log -t --target --root --src --report --cache-dir -d --dest -w --wheel-dir --global-option --build-option -C "
                "--config-settings --prefix --editor config"
            ),
        ),
        "eslint": program(
            "-c --config --rulesdir --plugin --parser --resolve-plugins-relative-to -f --format -o --output-file --fix --fix-dry-run "
            "--cache-location --cache-file --init --suppress-all --inspect-config",
            style="letters",
        ),
        "prettier": program("-w --write --plugin --config --plugin-search-dir --cache-location", style="letters"),
        "tsc": program(
            "-p --project -b --build --outDir --outFile --declarationDir --init --generateTrace --generateCpuProfile --tsBuildInfoFile @",
            style="letters",
        ),
        "jest": program(
            "-c --config --globalSetup --globalTeardown --setupFiles --setupFilesAfterEnv --runner --reporters --rootDir --roots --resolver "
            "--transform --testRunner --testEnvironment --testSequencer --testResultsProcessor --outputFile --preset --prettierPath --filter "
            "--snapshotResolver --watchPlugins --projects --env --coverageDirectory --cacheDirectory --globals --moduleNameMapper --modulePaths "
            "--moduleDirectories --snapshotSerializers --haste --dependencyExtractor -u --updateSnapshot --init",
            style="letters",
        ),
        "vitest": program(
            "-c --config -r --root --globalSetup --reporter --outputFile --outputJson --environment --runner --pool --poolOptions --execArgv "
            "--dir --ui --api --browser --diff -u --update --typecheck",
            style="letters",
        ),
        "mocha": program(
            "-r --require --config --package --opts --compilers --file -R --reporter -O --reporter-option --reporter-options -u --ui -n "
            "--node-option --loader --import",
            style="letters",
        ),
        "svn": program("--diff-cmd --diff3-cmd --editor-cmd --config-option --config-dir -F --file --targets"),
        "hg": program(
            "--config --config-file -R --repository --cwd -t --tool -e --ssh --remotecmd -o --output --program --command ext extd extdi extdif "
            "extdiff bi bis bise bisec bisect se ser serv serve debugsh debugshe debugshel debugshell"
        ),
        "jobs": program("-x", operands="text"),
        "wait": program("-p", operands="text"),
        "set": program("-k -H", operands="text"),
        "zip": program("-T --test --unzip-command"),
        "gh": program(
            "--jq -q -R --repo -w --web alias auth codespace cs config extension extensions ext browse -e --editor"
        ),
        "pre-commit": program("-c --config try-repo init-templatedir"),
        "date": reader(
            "-s --set", texts="-d --date -r --reference", flags="-u -R -I --utc --universal --rfc-email --debug"
        ),
        "diff3": reader("--diff-program"),
        "look": reader(operands="first_text"),
        "ptx": reader(max_operands=1),
        "sdiff": reader("-o --output --diff-program"),
        "shuf": reader("-o --output --random-source", texts="-n -i --head-count --input-range"),
        "csplit": program("-f --prefix -b --suffix-format"),
        "iconv": program("-o --output"),
        "unzip": program("-d -o"),
        "yq": program("-i --inplace --in-place -s --split-exp --split-exp-file --from-file -f -w"),
        "hostname": reader("-F --file -b --boot"),
        "ps": program(
            texts="-o -O -C -p -q -s -t -u -U -G -g --format --sort --pid --ppid --user --group --tty --cols",
            flags="-e -A -a -d -N -f -F -l -j -y -w -H -L -T -m -M -Z -c -V --no-headers --no-heading --forest --deselect",
        ),
        "ip": program("-b -ba -bat -batc -batch net netn netns v vr vrf", style="words"),
        **dict.fromkeys(
            "systemctl journalctl loginctl timedatectl hostnamectl localectl busctl".split(),
            program(
                "-H --host -M --machine --root --image --rotate --vacuum-size --vacuum-time --vacuum-files --flush edit call"
            ),
        ),
        **dict.fromkeys(
            "nm objdump readelf size strip ar ranlib objcopy addr2line c++filt gprof".split(), program("@ --plugin")
        ),
        "coverage": program("run debug --rcfile --source-pkgs --debug"),
        "tox": program("-c --conf -x --override --workdir --root --installpkg --result-json exec e devenv d"),
        "nox": program("-f --noxfile --envdir --report --python -P --extra-pythons"),
        **dict.fromkeys(["bat", "batcat", "delta"], program("--pager --config-file --diff-args --features --config")),
        "ag": program("--pager -p --path-to-ignore", **_SEARCHING),
        "ack": program("--pager --ackrc --output --files-from -x", **_SEARCHING),
        **dict.fromkeys(
            "ug ugrep".split(), program("--filter --config --view --pager --save-config -f --file", **_SEARCHING)
        ),
        **dict.fromkeys("rga pt sift".split(), program("--pre --config", **_SEARCHING)),
        **dict.fromkeys(
            "detect-secrets gitleaks semgrep trufflehog".split(),
            program("--config --report-path -o --output", **_SEARCHING),
        ),
        **dict.fromkeys(["codespell", "typos"], program("--config -w --write-changes", recursive=None)),
        "ctags": program("-f -o --options --options-maybe --optlib-dir --filter -L", recursive=["-R", "--recurse"]),
        "cloc": program(
            "--extract-with --vcs --config --list-file --exclude-list-file --report-file --out --sql --read-lang-def --force-lang-def "
            "--write-lang-def --diff-list-file --strip-comments --strip-code --write-stats --git"
        ),
        **dict.fromkeys(
            ["gradle", "gradlew"],
            program(
                "-I --init-script -b --build-file -c --settings-file -p --project-dir -g --gradle-user-home -D --system-prop "
                "--include-build --project-cache-dir"
            ),
        ),
        "mvn": program(
            "-f --file -s --settings -gs --global-settings -t --toolchains -l --log-file -Dmaven.ext.class.path -Dexec.executable -Djvm "
            "-DargLine -Dmaven.repo.local",
            style="words",
        ),
        **dict.fromkeys(
            ["bazel", "bazelisk"],
            program(
                "--run_under --workspace_status_command --bazelrc --shell_executable --override_repository --override_module "
                "--credential_helper --action_env --test_env --repo_env --output_base --output_user_root run"
            ),
        ),
        "ctest": program(
            "-S -SP -SV -D -T -O --script --dashboard --build-and-test --build-command --test-command --output-log",
            style="words",
        ),
        "meson": program("--wrapper --gdb --gdb-path --native-file --cross-file devenv"),
        "helm": program(
            "--post-renderer --kubeconfig --registry-config --repository-config --repository-cache --output-dir plugin"
        ),
        "protoc": program("--plugin @"),
        **dict.fromkeys(
            ["gpg", "gpg2"],
            program(
                "--photo-viewer --exec-path --options --homedir --agent-program --dirmngr-program --keyboxd-program --load-extension -o "
                "--output --log-file --show-photos --status-file --logger-file --attribute-file"
            ),
        ),
        "rpm": program("--eval -E --pipe --define -D --undefine --load --rcfile --macros --root -r --dbpath"),
        **dict.fromkeys(["apt", "apt-get", "apt-cache"], program("-o --option -c --config-file")),
        "dpkg": program("--pre-invoke --post-invoke --status-logger --root --admindir --instdir"),
        "openssl": program(
            "-engine -provider -provider-path -module -pre -post -config -out -outdir -keyout -keylogfile -sess_out -certsout -reqout -respout "
            "-CAcreateserial -CAserial -outpubkey -writerand",
            style="words",
        ),
        "rspec": program("-r --require -I -O --options -o --out"),
        "rubocop": program(
            "-r --require -c --config -f --format -o --out --plugin --cache-root -a -A -x --autocorrect --auto-gen-config"
        ),
        "phpunit": program(
            "-c --configuration --bootstrap --prepend --printer --extension -d --include-path --log-junit --cache-directory --cache-result-file"
        ),
        "dotnet": program(
            "@ -s --settings --test-adapter-path -a --logger -l -p --property exec run tool nuget msbuild script"
        ),
        "xmllint": program(
            "-noent -xinclude -loaddtd -dtdattr -path -catalogs -output -o -shell -dtdvalid", style="words"
        ),
    }
)
"""What is known of a program, by its name."""

SELF_DESCRIBING = frozenset(
    (name, option)
    for option, names in (
        (
            "--version",
            "python python3 node nodejs ruby perl php lua gcc g++ cc clang clang++ make cmake bash tar curl wget docker git",
        ),
        ("-V", "python python3"),
        ("-v", "node"),
    )
    for name in names.split()
)
"""Commands that only say which version of a program there is, of programs that start others with other words."""
UNPACKERS = frozenset(
    """
    gzip gunzip uncompress compress bzip2 bunzip2 xz unxz lzma unlzma zstd unzstd lz4 unlz4 lzop brotli pigz unpigz pbzip2 lbzip2 lzip
    """.split()
)
"""Programs that write a file whose name is that of another without its ending."""
SUFFIXED = MappingProxyType(
    {
        **dict.fromkeys("cp mv ln install gzip gunzip xz unxz".split(), "S"),
        **dict.fromkeys("sed gsed perl ruby".split(), "i"),
        **dict.fromkeys("patch gpatch".split(), "z"),
        **dict.fromkeys("rsync tar".split(), ""),
    }
)
"""Programs that may give a file a name with one more ending, and the letter of the option that says which."""

LISTED = frozenset("cpio pax afio 7z 7za 7zz rar".split())
"""Programs that are told by their input which files they read, or read all where nothing is named."""
LISTING_OPTIONS = frozenset(
    "--files0-from -files0-from --files-from --files --pathspec-from-file --null-from --include-from --from-file --input-file".split()
)
"""Options whose value is a file with the names of those that are read."""
_PLAIN = frozenset(
    """
    touch mkdir rmdir rm chmod chown chgrp tee truncate mktemp shred date uname hostname id whoami groups who users uptime df free ps
    kill pkill killall gzip gunzip zcat bzip2 bunzip2 xz unxz zstd unzip unrar mkfifo mknod sync shuf csplit yes nproc arch logname tty
    clear unset set shopt umask exit return read wait jobs type ulimit times test [ export declare local readonly typeset pushd popd dirs
    lsof pgrep pidof cal base64 base32 iconv dos2unix unix2dos sudoedit
    """.split()
)
"""Further programs that start no other one."""
_STARTING = frozenset(
    """
    go cargo npm pnpm yarn gh hg coverage tox nox gradle gradlew mvn bazel bazelisk ctest meson dotnet ip systemctl busctl rpm dpkg rspec phpunit
    helm
    """.split()
)
"""Programs that are known, and start others with some of their subcommands."""


def is_known(program: str) -> bool:
    """Whether it is known which programs a program may start. One that is not known may start what its words name: `faketime x rm y`."""
    name = program_name(program)
    known = (
        program in PROGRAMS
        or bool({program, name} & _PLAIN)
        or name in SUBCOMMANDS
        or name in WRAPPERS
        or name in INTERPRETERS
    )
    return known and name not in _STARTING | _LESS_KNOWN
