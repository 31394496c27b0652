"""Dialects: what the mock provider takes in and sends, for each wire format."""
