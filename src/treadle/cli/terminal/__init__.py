"""The interactive terminal: a conversation in the normal scrollback. Its heavy parts load when it begins."""
