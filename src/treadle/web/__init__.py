"""Web: a page for people on which a journal can be seen, answered and steered. Needs the extra `web`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.web.access import Access as Access
    from treadle.web.access import Token as Token
    from treadle.web.access import new_token as new_token
    from treadle.web.app import web as web
    from treadle.web.notices import Notice as Notice
    from treadle.web.notices import Notifier as Notifier

_HOMES = {
    "Access": "access",
    "Notice": "notices",
    "Notifier": "notices",
    "Token": "access",
    "new_token": "access",
    "web": "app",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one list of names, not two


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'treadle.web' has no attribute {name!r}")
    return getattr(import_module(f"treadle.web.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
