"""Concurrency: threads, forks, waits and turns of the event loop. Knows no agent."""
