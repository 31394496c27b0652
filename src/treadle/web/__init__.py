"""Web: a page for people on which a journal can be seen, answered and steered. Needs the extra `web`."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.web.access import Access as Access
    from treadle.web.access import Token as Token
    from treadle.web.access import new_token as new_token
    from treadle.web.app import web as web
    from treadle.web.notices import Notice as Notice
    from treadle.web.notices import Notifier as Notifier

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {"access": "Access Token new_token", "app": "web", "notices": "Notice Notifier"},
    extras={"app": "web"},
)
