"""The mock's side of the OpenAI Chat dialect."""
