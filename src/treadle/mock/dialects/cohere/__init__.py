"""The mock's side of the Cohere dialect."""
