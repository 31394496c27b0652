"""Tool calls: check, plan, schedule, attempt and finish the calls of one response."""
