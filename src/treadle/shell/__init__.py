"""Commands: what a line of shell would start, write and read, found by parsing it. Runs nothing and decides nothing."""
