"""Unshown: which part of a streamed text has not been shown yet. Values only; opens no stream."""

from treadle.events import ModelDelta, ModelFinished, ModelStarted

__all__ = ["Unshown"]


class Unshown:
    """The text of one step: what was shown of it, and what the response under way has brought so far."""

    def __init__(self) -> None:
        self._step = 0
        self._shown = ""
        self._received = ""

    def new_in(self, event: ModelStarted | ModelDelta | ModelFinished) -> str:
        """Return the text of an event that was not shown before. A repeated request sends its text from the start."""
        match event:
            case ModelStarted():
                if event.step != self._step:
                    self._step, self._shown = event.step, ""
                self._received = ""
                return ""
            case ModelDelta():
                return self._more(self._received + event.text)
            case ModelFinished():  # a model that sends no pieces sends it all at once
                return "" if self._received else self._more(event.message.text)

    def _more(self, received: str) -> str:
        self._received = received
        if self._shown.startswith(received):
            return ""
        # What was shown cannot be taken back: a response that differs from it begins anew on a line of its own.
        new = received[len(self._shown) :] if received.startswith(self._shown) else f"\n{received}"
        self._shown = received
        return new
