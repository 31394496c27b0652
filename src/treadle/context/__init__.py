"""Context: what a model is shown of a session."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.context.compaction import ClearResults as ClearResults
    from treadle.context.compaction import Summarize as Summarize
    from treadle.context.compaction import Tiers as Tiers
    from treadle.context.compilers import CurrentTrace as CurrentTrace
    from treadle.context.compilers import Injected as Injected
    from treadle.context.compilers import Labelled as Labelled
    from treadle.context.compilers import Redacted as Redacted
    from treadle.context.compilers import Sections as Sections
    from treadle.context.compilers import WholeHistory as WholeHistory
    from treadle.context.compilers import Window as Window
    from treadle.context.handoff import Handoff as Handoff

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "compaction": "ClearResults Summarize Tiers",
        "compilers": "CurrentTrace Injected Labelled Redacted Sections WholeHistory Window",
        "handoff": "Handoff",
    },
)
