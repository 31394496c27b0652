"""The scripted driver: each step comes from a script, whatever the agent's model is. Runs nothing and asks nobody."""

from collections.abc import Sequence

from treadle.drivers.native import BoundNativeDriver
from treadle.fields import checked
from treadle.ports import Executor, Model
from treadle.tools import Tool

__all__ = ["ScriptedDriver"]


class ScriptedDriver:
    """Plays a script in place of the agent's model; policies, budgets and the journal are the real ones.

    Example:
        Agent("demo", driver=ScriptedDriver(ScriptedModel([call("look"), text("Nothing.")])))
        Agent("demo", driver=ScriptedDriver(resolve_model("script:turns.json")))

    Args:
        script: What plays it: a ScriptedModel, a replay, or any other model.
    """

    @checked
    def __init__(self, script: Model) -> None:
        self._script = script

    @checked
    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> BoundNativeDriver:
        """Return the driver of one run. The agent's model is not asked."""
        return BoundNativeDriver(self._script)
