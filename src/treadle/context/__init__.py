"""Context: what a model is shown of a session."""
