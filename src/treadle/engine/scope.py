"""The scope of a run: what each part of its engine works with. Made once; does nothing itself."""

import msgspec

from treadle.budgets import Meter
from treadle.engine.hooks import Hooks
from treadle.engine.interrupts import Interrupt
from treadle.ports import Clock
from treadle.sessions.ledger import Ledger

__all__ = ["RunScope"]


class RunScope(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one run that all others share."""

    ledger: Ledger
    """Where its events are recorded."""
    interrupt: Interrupt
    """What may end it early."""
    meter: Meter
    """What it may use."""
    hooks: Hooks

    @property
    def clock(self) -> Clock:
        return self.ledger.clock
