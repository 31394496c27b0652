"""The simulator: whole lives of sessions from one seed, in one process, on fake time (row H22).

    PYTHONPATH=tests python -m simulator --seed 7 -v      replay one life and print what happened in it
    PYTHONPATH=tests python -m simulator --lives 10000    look for lives that break a promise

A life runs the real Agent, Session and loop. Only the edges are simulated: event loop, clock, store, model, tools, persons.
"""
