"""Mutations: does a test fail when the code is wrong? Changes the engine's code in memory; writes no source file."""
