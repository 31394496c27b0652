"""Providers: models of each dialect, their vendors, and recordings of them."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.providers.http.endpoint import Timeouts as Timeouts
    from treadle.providers.recorded import RecordingModel as RecordingModel
    from treadle.providers.recorded import ReplayModel as ReplayModel

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "http.endpoint": "Timeouts",
        "recorded": "RecordingModel ReplayModel",
    },
)
