"""Hooks: what users put around calls."""
