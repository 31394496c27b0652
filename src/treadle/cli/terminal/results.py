"""Results: what a person is shown of the result of a call in a conversation. Draws nothing."""

from treadle.cli.output.results import shown_result as shown
from treadle.cli.terminal.board import CallView

__all__ = ["shown_result"]


def shown_result(call: CallView) -> str:
    """Return what a person is shown of the result that a call has."""
    assert call.result is not None
    return shown(call.result)
