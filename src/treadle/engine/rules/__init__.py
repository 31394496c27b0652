"""Rules: one decision each, as plain functions and values. A rule knows no other rule."""
