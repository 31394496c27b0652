"""The demo model: rules in place of a language model, behind a real server. Names nothing: import its files."""
