"""What the command line shows: the terminal, progress, screens and texts."""
