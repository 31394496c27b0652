"""Spoken: which part of a streamed text has not been shown yet. Values only; opens no stream."""

from treadle.events import ModelDelta, ModelFinished, ModelStarted

__all__ = ["Spoken"]


class Spoken:
    """The text of one step: what was shown of it, and what the response under way has said so far."""

    def __init__(self) -> None:
        self._step = 0
        self._shown = ""
        self._said = ""

    def new_in(self, event: ModelStarted | ModelDelta | ModelFinished) -> str:
        """Return the text of an event that was not shown before. A repeated request says its text from the start."""
        match event:
            case ModelStarted():
                if event.step != self._step:
                    self._step, self._shown = event.step, ""
                self._said = ""
                return ""
            case ModelDelta():
                return self._more(self._said + event.text)
            case ModelFinished():  # a model that sends no pieces says it all at once
                return "" if self._said else self._more(event.message.text)

    def _more(self, said: str) -> str:
        self._said = said
        if self._shown.startswith(said):
            return ""
        # What was shown cannot be taken back: a response that differs from it begins anew on a line of its own.
        new = said[len(self._shown) :] if said.startswith(self._shown) else f"\n{said}"
        self._shown = said
        return new
