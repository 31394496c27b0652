"""Permissions: whether a call may run."""
