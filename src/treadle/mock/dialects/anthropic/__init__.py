"""The mock's side of the Anthropic dialect."""
