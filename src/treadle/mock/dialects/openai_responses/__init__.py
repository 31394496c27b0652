"""The mock's side of the OpenAI Responses dialect."""
