"""The generated part of the manual: what the reference says, read from the code."""
