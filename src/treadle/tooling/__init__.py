"""Tooling: make tools from functions, and find them by name."""
