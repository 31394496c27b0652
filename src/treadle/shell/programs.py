"""What is known of common programs: which only read, which start others, and which options write, run or read settings. Data only.

A program that is not here is not known: a person may allow it by name, and every path among its arguments counts as written.
The lists of options come from the programs' own manuals; they forbid what a rule such as `git log:*` would otherwise let in.
"""

import posixpath
import re
from types import MappingProxyType
from typing import Any, Literal

import msgspec

__all__ = [
    "AMBIGUOUS_OPTIONS",
    "EVALUATING",
    "INTERPRETERS",
    "LISTED",
    "LISTING_OPTIONS",
    "OPAQUE",
    "PLAIN_GIT",
    "PROGRAMS",
    "READABLE_SHELLS",
    "RUNNING_OPTIONS",
    "SETTING",
    "SHELLS",
    "SHOWING_GIT",
    "SUBCOMMANDS",
    "TEXT_PROGRAMS",
    "WRAPPERS",
    "Program",
    "is_known",
    "program_name",
]

_VERSION = re.compile(r"[-.]?\d+(\.\d+)*$")


def program_name(word: str) -> str:
    """Return a program's plain name: no folder and no version (`/usr/bin/python3.11` is `python`)."""
    name = posixpath.basename(word)
    return (_VERSION.sub("", name) or name).lower()


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One program, or one subcommand of it."""

    reads_only: bool = False
    """Whether it changes nothing as long as none of its `risky` options is given."""
    risky: frozenset[str] = frozenset()
    """Options that write a file, start a program or read settings from one: `--output`, `-o`. A long one also counts by its beginnings.
    `@`: it takes more options from a file `@FILE`. One without a sign is a word that does so: `run`."""
    style: str = "gnu"
    """`gnu`: short options may be joined (`-xo`), long ones cut short. `words`: an option is one whole word (`-exec`)."""
    max_operands: int | None = None
    """Further operands are files that it writes (`uniq IN OUT`), and so is what looks like an option behind an operand; None for no such rule."""
    operands: str = "paths"
    """`paths`: each operand may be a path. `first_text`: the first is a pattern or script. `text`: none is a path."""
    texts: frozenset[str] = frozenset()
    """Options whose value is text and no path or operand: `-n`, `--format`."""
    recursive: frozenset[str] | None = frozenset()
    """Options with which it goes through whole folders, and where no path is given through the one it is in; None if it always does."""
    revisions: bool = False
    """Whether an operand may be a revision, so that only what follows `--` or a colon surely is a path: `git diff main`."""
    flags: frozenset[str] = frozenset()
    """Of one that may go through folders: its options without a value. What follows another option may be its value, and no path."""
    folder: Literal["itself", "children", "tree"] = "tree"
    """What it reaches of a folder that it is given, where it does not go through all of it."""


# Any: the fields of a Program; `convert` checks them.
def _program(risky: str = "", *, texts: str = "", flags: str = "", **settings: Any) -> Program:
    words = {"risky": risky.split(), "texts": texts.split(), "flags": flags.split()}
    return msgspec.convert({**words, **settings}, Program)


def _reader(risky: str = "", *, texts: str = "", **settings: Any) -> Program:
    """Describe a program that reads the files it is given, and of a folder nothing."""
    return _program(risky, texts=texts, reads_only=True, **{"folder": "itself", **settings})


def _searcher(risky: str = "", *, texts: str = "", **settings: Any) -> Program:
    """Describe a program that goes through whole folders."""
    return _program(risky, texts=texts, reads_only=True, **{"recursive": None, **settings})


WRAPPERS = frozenset(
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
    identify montage composite rustc g++ c++ clang++ tcc ld
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
    vimdiff emacs emacsclient sqlite fc let
    """.split()
)
"""Programs that start what their input, their settings or their joined words say: their words do not name it."""
EVALUATING = frozenset("test [ unset read wait printf getopts declare typeset local readonly export".split())
"""Builtins that take names of variables: they carry out what stands in a subscript of one, such as `a[$(id)]`, in single quotes too."""
SETTING = frozenset("export declare typeset readonly local read getopts".split())
"""Builtins that set variables, such as `PATH`, for the commands after them. The reader knows most of them by their form, but not in quotes."""
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
AMBIGUOUS_OPTIONS = frozenset("--config --filter".split())
"""Those of them that mean something harmless to most programs that are not known here."""

_GREP_RECURSES = ["-r", "-R", "-d", "--recursive", "--dereference-recursive", "--directories"]
_GREP_FLAGS = """
    -i -n -l -c -w -v -s -F -E -G -P -x -o -r -R -H -h -z -a -q -L -U -b -I --recursive --dereference-recursive --ignore-case
    --line-number --files-with-matches --count --word-regexp --invert-match --fixed-strings --extended-regexp --perl-regexp
    --only-matching --with-filename --no-filename --text --quiet --no-messages
"""
_RG_FLAGS = f"""
    {_GREP_FLAGS} -u -S -N -p -0 --hidden --no-ignore --smart-case --json --vimgrep --heading --no-heading --no-line-number --files
    --case-sensitive --follow --multiline --unrestricted
"""


def _grep() -> Program:
    return _program(
        "-f --file --exclude-from",
        operands="first_text",
        texts="-e --regexp",
        reads_only=True,
        recursive=_GREP_RECURSES,
        flags=_GREP_FLAGS,
        folder="itself",
    )


_DIFF = "--output --ext-diff --textconv --show-signature --help -O"
_PATCH = """
    -p -u -U -c -m -L --patch --unified --cc --dd --remerge-diff --diff-merges --binary --patch-with-stat --patch-with-raw
""".split()
"""Options with which git shows what stands in files, beside who changed them when."""
_SIGNING = "-S --gpg-sign --verify-signatures"
"""Options with which git starts the program that signs, or checks signatures."""
_FETCHING = "--depth --deepen --shallow-since --shallow-exclude -j --jobs --refmap"
"""Options with which git fetches, whose value is not a repository."""
_GIT_READERS = {
    "blame": _reader(f"{_DIFF} --contents --ignore-revs-file -S"),
    "cat-file": _reader("--textconv --filters --help", recursive=None, revisions=True),
    "count-objects": _reader("--help"),
    "describe": _reader("--help", operands="text"),
    "diff": _reader(_DIFF, recursive=None, revisions=True),
    "for-each-ref": _reader("--shell --perl --python --tcl --help", operands="text"),
    "grep": _searcher(
        "-O --open-files-in-pager --ext-grep --textconv --help -f",
        operands="first_text",
        texts="-e",
        flags=_GREP_FLAGS,
        revisions=True,
    ),
    "log": _reader(_DIFF, folder="tree", recursive=_PATCH, revisions=True),
    "ls-files": _reader("--help -X --exclude-from"),
    "ls-tree": _reader("--help"),
    "merge-base": _reader("--help", operands="text"),
    "name-rev": _reader("--help", operands="text"),
    "rev-list": _reader(f"{_DIFF} --use-bitmap-index"),
    "rev-parse": _reader("--help --parseopt --sq-quote"),
    "shortlog": _reader(_DIFF),
    "show": _reader(_DIFF, recursive=None, revisions=True),
    "status": _reader("--help"),
    "version": _reader("--help"),
    "whatchanged": _reader(_DIFF, folder="tree", recursive=_PATCH, revisions=True),
}
_GIT_WRITERS = {
    "add": _program("--pathspec-from-file --help -e --edit"),
    **dict.fromkeys("checkout mv reset restore rm switch".split(), _program("--pathspec-from-file --help")),
    "stash": _program(f"{_DIFF} --pathspec-from-file", recursive=["-p", "--patch"], revisions=True),
    **dict.fromkeys(
        "branch notes worktree symbolic-ref update-ref".split(), _program("--edit-description -e --help -F")
    ),
    "reflog": _program(_DIFF),
    "tag": _program("--edit -e --help -F --file -s --sign -u --local-user -v --verify"),
    "commit": _program(f"-F --file -t --template --help -c -C -e --edit --pathspec-from-file {_SIGNING}"),
    "fetch": _program(
        "--upload-pack -u --negotiation-tip --recurse-submodules --help --server-option -o", texts=_FETCHING
    ),
    "merge": _program(f"-s --strategy -X --help -F --file {_SIGNING}"),
    "pull": _program(
        f"--upload-pack -s --strategy -X --rebase --help --recurse-submodules {_SIGNING}", texts=_FETCHING
    ),
    "push": _program("--receive-pack --exec --help --recurse-submodules -o --push-option --signed --repo"),
    "cherry-pick": _program(f"-e --edit -s --strategy -X --help {_SIGNING}"),
    "revert": _program(f"-e --edit -s --strategy -X --help {_SIGNING}"),
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

SUBCOMMANDS = MappingProxyType({"git": MappingProxyType({**_GIT_READERS, **_GIT_WRITERS})})
"""Programs that are judged by their subcommand. One that is not listed may be an alias for any command."""

PROGRAMS = MappingProxyType(
    {
        **dict.fromkeys("true false pwd".split(), _reader(operands="text")),
        **dict.fromkeys("echo basename dirname seq expr sleep".split(), _reader(operands="text")),
        **dict.fromkeys(
            "cat tac head tail cut fold nl rev comm cmp paste column stat readlink realpath "
            "sum od hexdump expand unexpand join pr fmt tsort numfmt".split(),
            _reader(),
        ),
        "strings": _reader("@"),
        **dict.fromkeys(
            "md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum".split(), _reader("-c --check")
        ),
        **dict.fromkeys("ls ll dir vdir".split(), _reader(folder="children", recursive=["-R", "--recursive"])),
        ":": _reader(operands="text"),
        "cd": _reader(),
        "which": _reader(operands="text"),
        "diff": _reader("--to-file --from-file -l --paginate", folder="children", recursive=["-r", "--recursive"]),
        "du": _searcher(
            "--files0-from -X --exclude-from", flags="-a -h -s -c -k -m -x -b -L -S --all --summarize --human-readable"
        ),
        "egrep": _grep(),
        "fd": _searcher(
            "-x --exec -X --exec-batch --ignore-file",
            operands="first_text",
            flags="-H -I -u -s -i -g -F -a -l -L -p -0 -1 -q --hidden --no-ignore --glob --absolute-path --follow",
        ),
        "fgrep": _grep(),
        "file": _reader("-C --compile -f --files-from -m --magic-file -p --preserve-date -Z -z"),
        "find": _searcher(
            "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from", style="words"
        ),
        "grep": _grep(),
        "jq": _reader(
            "-f --from-file -L --library-path --rawfile --slurpfile --argfile -i",
            operands="first_text",
            flags="-r -c -n -s -e -S -j -a -C -M -R --raw-output --compact-output --null-input --slurp --sort-keys --exit-status",
        ),
        "printenv": _program(operands="text"),
        "printf": _reader("-v", operands="text"),
        "rg": _searcher(
            "--pre --hostname-bin -z --search-zip -f --file --ignore-file --pre-glob",
            operands="first_text",
            texts="-e --regexp --files",
            flags=_RG_FLAGS,
        ),
        "sort": _reader("-o --output --compress-program -T --temporary-directory --files0-from --random-source"),
        "tr": _reader(operands="text"),
        "tree": _searcher(
            "-o --fromfile --fromtabfile --gitfile --infofile -R",
            flags="-a -d -f -i -l -x -p -s -h -D -C -n -F -u -g -r -t",
        ),
        "uniq": _reader(max_operands=1, texts="-f -s -w --skip-fields --skip-chars --check-chars"),
        "wc": _reader("--files0-from"),
        "xxd": _reader("-r -revert --revert", max_operands=1, texts="-c -g -l -o -s -n -R"),
        "cp": _program("-t --target-directory --backup -S --suffix"),
        "mv": _program("-t --target-directory --backup -S --suffix"),
        "ln": _program("-t --target-directory --backup -S --suffix"),
        "install": _program("-t --target-directory --strip-program --backup -S --suffix"),
        "split": _program("--filter"),
        "dd": _program(style="words"),
        "go": _program(
            "-exec -toolexec -vettool -overlay -modfile -C -o -w -ldflags -gcflags -asmflags -gccgoflags -compiler",
            style="words",
        ),
        "cargo": _program("--config --manifest-path -Z -C --target-dir"),
        "npm": _program(
            "--prefix --script-shell --node-options --userconfig --globalconfig -C --git --shell --editor --viewer --node-gyp --python "
            "--init-module --onload-script"
        ),
        "pnpm": _program("--prefix --script-shell --node-options -C --dir --shell-emulator"),
        "yarn": _program("--cwd --use-yarnrc --script-shell"),
        "pytest": _program(
            "-p -c --config-file --rootdir --confcutdir -o --override-ini --basetemp --junitxml --junit-xml --pdbcls --pastebin --debug "
            "--tx --px --rsyncdir --report-log @"
        ),
        "ruff": _program("--config --cache-dir --output-file -o @"),
        "mypy": _program(
            "--config-file --python-executable --cache-dir --junit-xml --install-types --any-exprs-report --cobertura-xml-report --html-report "
            "--linecount-report --linecoverage-report --lineprecision-report --txt-report --xml-report --xslt-html-report --xslt-txt-report @"
        ),
        "black": _program("--config"),
        "isort": _program("--settings-path --settings-file --sp"),
        "pylint": _program("--init-hook --load-plugins --rcfile --output"),
        "flake8": _program("--config --append-config --output-file"),
        **dict.fromkeys(
            ["pip", "pip3"],
            _program(
                "--python --log -t --target --root --src --report --cache-dir -d --dest -w --wheel-dir --global-option --build-option -C "
                "--config-settings"
            ),
        ),
        "eslint": _program(
            "-c --config --rulesdir --plugin --parser --resolve-plugins-relative-to -f --format -o --output-file --fix --fix-dry-run "
            "--cache-location --init"
        ),
        "prettier": _program("-w --write --plugin --config --plugin-search-dir --cache-location"),
        "tsc": _program("-p -project -b -build -outDir -outFile -declarationDir -init @", style="words"),
        "jest": _program(
            "-c --config --globalSetup --globalTeardown --setupFiles --setupFilesAfterEnv --runner --reporters --rootDir --roots --resolver "
            "--transform --testRunner --testEnvironment --testSequencer --testResultsProcessor --outputFile --preset --prettierPath --filter "
            "--snapshotResolver --watchPlugins --projects --env"
        ),
        "vitest": _program("-c --config -r --root --globalSetup --reporter --outputFile --environment --runner --pool"),
        "mocha": _program(
            "-r --require --config --package --file -R --reporter -u --ui -n --node-option --loader --import"
        ),
        "svn": _program("--diff-cmd --diff3-cmd --editor-cmd --config-option --config-dir -F --file --targets"),
        "hg": _program("--config --config-file -R --repository --cwd -t --tool -e --ssh --remotecmd -o --output"),
        "jobs": _program("-x", operands="text"),
        "wait": _program("-p", operands="text"),
        "set": _program("-k -H", operands="text"),
        "zip": _program("-T --test --unzip-command"),
        "gh": _program("--jq -q -R --repo -w --web alias auth codespace cs config extension extensions ext"),
        "date": _program("-s --set", texts="-d --date -r --reference"),
        "hostname": _program("-F --file -b --boot"),
        "ps": _program(
            texts="-o -O -C -p -q -s -t -u -U -G -g --format --sort --pid --ppid --user --group --tty --cols"
        ),
        "ip": _program("-b -batch --batch netns vrf", style="words"),
        **dict.fromkeys(
            "systemctl journalctl loginctl timedatectl hostnamectl localectl busctl".split(),
            _program(
                "-H --host -M --machine --root --image --rotate --vacuum-size --vacuum-time --vacuum-files --flush edit"
            ),
        ),
        **dict.fromkeys(
            "nm objdump readelf size strip ar ranlib objcopy addr2line c++filt gprof".split(), _program("@ --plugin")
        ),
        "coverage": _program("run debug --rcfile --source-pkgs --debug"),
        "tox": _program("-c --conf -x --override --workdir --root --installpkg --result-json exec e devenv d"),
        "nox": _program("-f --noxfile --envdir --report --python -P --extra-pythons"),
        **dict.fromkeys(["bat", "batcat", "delta"], _program("--pager --config-file --diff-args --features --config")),
        "ag": _program("--pager -p --path-to-ignore"),
        "ack": _program("--pager --ackrc --output --files-from -x"),
        "cloc": _program(
            "--extract-with --vcs --config --list-file --exclude-list-file --report-file --out --sql --read-lang-def --force-lang-def "
            "--write-lang-def --diff-list-file --strip-comments --strip-code --write-stats --git"
        ),
        **dict.fromkeys(
            ["gradle", "gradlew"],
            _program(
                "-I --init-script -b --build-file -c --settings-file -p --project-dir -g --gradle-user-home -D --system-prop "
                "--include-build --project-cache-dir"
            ),
        ),
        "mvn": _program(
            "-f --file -s --settings -gs --global-settings -t --toolchains -l --log-file -Dmaven.ext.class.path -Dexec.executable -Djvm "
            "-DargLine -Dmaven.repo.local",
            style="words",
        ),
        **dict.fromkeys(
            ["bazel", "bazelisk"],
            _program(
                "--run_under --workspace_status_command --bazelrc --shell_executable --override_repository --override_module "
                "--credential_helper --action_env --test_env --repo_env run"
            ),
        ),
        "ctest": _program(
            "-S -SP -SV -D -T -O --script --dashboard --build-and-test --build-command --test-command --output-log",
            style="words",
        ),
        "meson": _program("--wrapper --gdb --gdb-path --native-file --cross-file devenv"),
        "helm": _program(
            "--post-renderer --kubeconfig --registry-config --repository-config --repository-cache --output-dir plugin"
        ),
        "protoc": _program("--plugin @"),
        **dict.fromkeys(
            ["gpg", "gpg2"],
            _program(
                "--photo-viewer --exec-path --options --homedir --agent-program --dirmngr-program --keyboxd-program --load-extension -o "
                "--output --log-file --show-photos --status-file --logger-file --attribute-file"
            ),
        ),
        "rpm": _program("--eval -E --pipe --define -D --undefine --load --rcfile --macros --root -r --dbpath"),
        **dict.fromkeys(["apt", "apt-get", "apt-cache"], _program("-o --option -c --config-file")),
        "dpkg": _program("--pre-invoke --post-invoke --status-logger --root --admindir --instdir"),
        "openssl": _program("-engine -provider -provider-path -config -out -writerand", style="words"),
        "rspec": _program("-r --require -I -O --options -o --out"),
        "rubocop": _program(
            "-r --require -c --config -f --format -o --out --plugin --cache-root -a -A -x --autocorrect --auto-gen-config"
        ),
        "phpunit": _program(
            "-c --configuration --bootstrap --prepend --printer --extension -d --include-path --log-junit --cache-directory --cache-result-file"
        ),
        "dotnet": _program(
            "@ -s --settings --test-adapter-path -a --logger -l -p --property exec run tool nuget msbuild script"
        ),
        "xmllint": _program(
            "-noent -xinclude -loaddtd -dtdattr -path -catalogs -output -o -shell -dtdvalid", style="words"
        ),
    }
)
"""What is known of a program, by its name."""

SHOWING_GIT = frozenset(
    "archive bundle fast-export format-patch diff-files diff-index diff-tree range-diff merge-tree difftool request-pull worktree".split()
)
"""Subcommands of git that show or copy what stands in files that no word names."""
LISTED = frozenset("cpio pax afio".split())
"""Programs that are told by their input which files they read."""
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
    go cargo npm pnpm yarn gh coverage tox nox gradle gradlew mvn bazel bazelisk ctest meson dotnet ip systemctl rpm dpkg rspec phpunit helm
    """.split()
)
"""Programs that are known, and start others with some of their subcommands."""


def is_known(program: str) -> bool:
    """Whether it is known which programs a program may start. One that is not known may start what its words name: `faketime x rm y`."""
    name = program_name(program)
    known = program in PROGRAMS or name in _PLAIN or name in SUBCOMMANDS or name in WRAPPERS or name in INTERPRETERS
    return known and name not in _STARTING
