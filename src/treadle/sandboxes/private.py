"""Private: the places that a confined command does not read unless the person opens them: keys, credentials, histories, and the state of Treadle."""

import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import suppress
from glob import glob
from pathlib import Path

from treadle.sandboxes.closing import entries_of
from treadle.sandboxes.own import config_folder, state_folder

__all__ = ["is_reached", "private_places"]

_OF_A_HOME = """
    .ssh .gnupg .pki .password-store .vault-token .age .config/sops .config/age .netrc _netrc .authinfo .authinfo.gpg .git-credentials
    .config/git/credentials .aws .azure .config/gcloud .kube .docker .config/containers/auth.json .oci .bluemix .aliyun .tsh .s3cfg .boto
    .config/rclone .config/doctl .config/helm .terraformrc .terraform.d/credentials.tfrc.json .pulumi .fly .config/fly .config/heroku
    .heroku .config/netlify .netlify .vercel .config/vercel .railway .supabase .wrangler .config/.wrangler .config/gh .config/hub
    .config/glab-cli .subversion/auth .npmrc .yarnrc .yarnrc.yml .bunfig.toml .pypirc .config/pip/pip.conf .pip/pip.conf
    .config/pypoetry/auth.toml .cargo/credentials .cargo/credentials.toml .gem/credentials .bundle/config .m2/settings.xml
    .m2/settings-security.xml .gradle/gradle.properties .nuget/NuGet/NuGet.Config .composer/auth.json .config/composer/auth.json .pgpass
    .my.cnf .mylogin.cnf .databrickscfg .snowsql .dbt .streamlit/secrets.toml .kaggle .wandb .config/wandb .huggingface
    .cache/huggingface/token .cache/huggingface/stored_tokens .local/share/jupyter/runtime .local/share/keyrings .local/share/kwalletd
    .config/keybase .config/keepassxc .config/op .config/1Password .config/Bitwarden Library/Keychains .mozilla .thunderbird
    .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge .config/vivaldi .config/opera snap/firefox
    snap/chromium .var/app .config/Slack .config/discord .config/Signal .purple .msmtprc .muttrc .mutt .config/filezilla .config/remmina
    .bash_history .zsh_history .zhistory .histfile .sh_history .local/share/fish/fish_history .python_history .node_repl_history
    .psql_history .mysql_history .sqlite_history .rediscli_history .irb_history .lesshst .viminfo .local/share/nvim .local/state/nvim
    .local/share/recently-used.xbel .claude .claude.json .codex .gemini .qwen .config/opencode .local/share/opencode .cursor .copilot
    .config/github-copilot .continue .aider .aider.conf.yml .config/goose .kimi .config/crush .local/share/crush .amp .config/amp .factory
    .local/share/atuin .ipython/profile_default/history.sqlite .wget-hsts .ollama/id_ed25519 .config/solana .solana .ethereum .electrum .bitcoin
    .near-credentials .config/borg .acme.sh .config/letsencrypt .local/share/mkcert .cloudflared .keepass .vault_pass .ansible/vault .chef
    .snowflake .config/stripe .config/wrangler .config/hcloud .config/linode-cli .config/ngrok .config/supabase .config/turso .config/doppler
    .doppler .circleci .travis .config/tea .local/share/com.vercel.cli .local/share/containers/auth.json .local/share/uv/credentials
    .config/configstore .edgerc .ngc .mc/config.json .expo .config/libvirt .config/teleport .config/obs-studio .smbcredentials .davfs2
    .passwd-s3fs .fetchmailrc .curlrc .wgetrc .weechat .config/weechat .jupyter/jupyter_server_config.json .condarc .config/nordvpn
    .local/share/TelegramDesktop .vscode-server/data .local/state/treadle
    .config/openai .config/anthropic .config/Code/User/globalStorage .config/Cursor .config/Windsurf .Xauthority .ICEauthority
"""
_OF_THE_SYSTEM = """
    /etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/ssl/private /etc/ssh/ssh_host_*_key
    /etc/krb5.keytab /etc/NetworkManager/system-connections /etc/wireguard /etc/openvpn /etc/kubernetes /etc/rancher /etc/docker
    /var/lib/docker /var/lib/containers /var/lib/containerd /var/lib/kubelet /var/spool/cron /var/spool/mail /var/mail /var/backups
"""
_NAMED = """
    KUBECONFIG AWS_SHARED_CREDENTIALS_FILE AWS_CONFIG_FILE AZURE_CONFIG_DIR CLOUDSDK_CONFIG GOOGLE_APPLICATION_CREDENTIALS GNUPGHOME
    DOCKER_CONFIG NETRC PGPASSFILE HISTFILE XAUTHORITY PASSWORD_STORE_DIR GH_CONFIG_DIR CODEX_HOME CLAUDE_CONFIG_DIR HF_TOKEN_PATH
    NPM_CONFIG_USERCONFIG PIP_CONFIG_FILE
"""
"""Variables that say where such a place is."""
_HOMES = ("/home/*", "/root")
_STATE = ("journal.db", "processes", "history")
_MOVED = ((".config/", "XDG_CONFIG_HOME"), (".local/share/", "XDG_DATA_HOME"), (".local/state/", "XDG_STATE_HOME"))


def private_places(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files and folders that exist of them, from `/`, links resolved: also the homes of others. Takes about a millisecond."""
    homes = _homes(environment)
    named = (*_HOMES, *_OF_THE_SYSTEM.split())
    found = [*_of_the_homes(homes, environment), *(one for name in named for one in glob(name)), *_state(environment)]  # noqa: PTH207 - texts
    for variable in _NAMED.split():
        found += [one for one in environment.get(variable, "").split(os.pathsep) if one.startswith("/")]
    real = dict.fromkeys(os.path.realpath(one) for one in found if os.path.lexists(one))
    return tuple(
        one
        for one in real
        if not any(f"{home}/".startswith(f"{one}/") for home in homes) and _is_plain(one) and is_reached(one)
    )


def is_reached(path: str) -> bool:
    """Whether a confined command could come to a path at all. Nothing can be mounted on one to which its user cannot go; root is no more than a user there."""
    if os.geteuid() != 0:
        return os.access(Path(path).parent, os.X_OK)
    return all(one.st_uid == 0 or one.st_mode & 0o001 for one in map(Path.stat, Path(path).parents))


def _state(environment: Mapping[str, str]) -> list[str]:
    """Return the state of Treadle; where one folder holds its configuration, too, just the state: commands may run skills."""
    folder = state_folder(environment)
    if folder != config_folder(environment):
        return [str(folder)]
    return [one.path for one in entries_of(str(folder)) if one.name.startswith(_STATE)]


def _homes(environment: Mapping[str, str]) -> set[str]:
    found = [environment.get("HOME", "")]
    with suppress(KeyError):  # a user without an entry
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    return {os.path.realpath(one) for one in found if one.startswith("/")} - {"/"}


def _of_the_homes(homes: set[str], environment: Mapping[str, str]) -> Iterator[str]:
    for name in _OF_A_HOME.split():
        for home in homes:
            yield f"{home}/{name}"
        for begin, variable in _MOVED:
            if name.startswith(begin) and (base := environment.get(variable)):
                yield f"{base}/{name.removeprefix(begin)}"


def _is_plain(path: str) -> bool:
    return os.path.isdir(path) or os.path.isfile(path)  # noqa: PTH112, PTH113 - some hundred names at each start
