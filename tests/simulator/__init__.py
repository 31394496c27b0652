"""The simulator: whole lives of sessions from one seed, in one process, on fake time (row H22).

    PYTHONPATH=tests python -m simulator --seed 7 -v      replay one life and print what happened in it
    PYTHONPATH=tests python -m simulator --lives 10000    look for lives that break a promise

    PYTHONPATH=tests python -m simulator --disk --lives 40   compare lives in memory with the same lives on SQLite files

Bugs put in by hand (`python -m simulator.bugs`), and the first seed whose life shows each:

    an intent is not synced before its call acts                            9
    a call in doubt runs again and nobody is asked                        265
    edited arguments are ignored                                           85
    calls that will not start get no result                                27
    each attempt has its own key                                          124
    an unsafe call is retried                                              11
    the calls of a response that was cut off run                          196
    a failure hides that the call may have acted                           11
    a call that acts starts while the response streams                     11
    a steered message is added twice after a crash                         59
    a resolution is told between calls and their results                  186
    a move does not close its source                                       15
    a run begins in a suspended session                                     7
    the turns of the model have no limit                                   37
    a call that equals one in doubt runs unasked                          129
    what an interceptor changes is lost                                    80
    a polling tool counts as repetition                                   160
    done_when is not asked                                                 65
    an action of a tool's own is allowed whatever policy says             117
    the calls of one response may take for ever                          1410
    a resume ignores its smaller budget                                     4
    agents as tools spend nothing of their caller's budget                 37
    a request that allows no call does not keep the model from calling     42

A life runs the real Agent, Session and loop. Only the edges are simulated: event loop, clock, store, model, tools, persons.
"""
