"""The commands, one a module, each imported when it is called. They hold no option and print through the terminal."""
