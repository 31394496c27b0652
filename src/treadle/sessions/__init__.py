"""Sessions: what is recorded of a conversation, and what people do to it between its runs."""
