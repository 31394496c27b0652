"""Treadle: the tool loop of a language-model agent."""
