"""The mock's side of the Gemini dialect."""
