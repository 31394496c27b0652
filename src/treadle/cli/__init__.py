"""The command line: options and files in, answers and exit codes out. It decides nothing that the library decides."""
