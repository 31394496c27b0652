"""Sandboxes: run a program as it is, so that nothing of it outlives its call, or confined. Decides nothing."""
