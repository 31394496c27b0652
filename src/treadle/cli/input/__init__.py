"""What the command line takes in: options, files, settings and places."""
