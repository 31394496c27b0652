"""The ten budgets, as values. A misspelt name is an error that names the right one."""

from treadle.budgets import Budget, budget_from
from treadle.errors import UnknownBudget

budget = Budget(max_model_turns=20, max_total_cost=0.50)
assert budget.max_tool_calls == 500

try:
    budget_from({"max_tool_cals": 3})
except UnknownBudget as error:
    print(error)
else:
    raise AssertionError("a misspelt budget was accepted")
