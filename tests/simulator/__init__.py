"""The simulator: whole lives of sessions from one seed, in one process, on fake time (row H22).

    PYTHONPATH=tests python -m simulator --seed 7 -v      replay one life and print what happened in it
    PYTHONPATH=tests python -m simulator --lives 10000    look for lives that break a promise

    PYTHONPATH=tests python -m simulator --disk --lives 40   compare lives in memory with the same lives on SQLite files

Bugs put in by hand (`python -m simulator.bugs`), and the first seed whose life shows each:

    an intent is not synced before its call acts                            1
    a call in doubt runs again and nobody is asked                         50
    edited arguments are ignored                                           12
    calls that will not start get no result                                38
    each attempt has its own key                                           37
    an unsafe call is retried                                              86
    the calls of a response that was cut off run                          115
    a failure hides that the call may have acted                           54
    a call that acts starts while the response streams                     17
    a steered message is added twice after a crash                          8
    a resolution is told between calls and their results                  926
    a move does not close its source                                        3
    a run begins in a suspended session                                    26
    the turns of the model have no limit                                   30
    a call that equals one in doubt runs unasked                          472
    what an interceptor changes is lost                                    59
    a polling tool counts as repetition                                   216
    done_when is not asked                                                134
    an action of a tool's own is allowed whatever policy says             111
    the calls of one response may take for ever                          1321
    a resume ignores its smaller budget                                    81
    agents as tools spend nothing of their caller's budget               2555
    a request that allows no call does not keep the model from calling      5
    a call starts by a decision of the mode before                         65
    a crash lifts an interrupt                                            620
    toolsets stay open                                                     18
    a compaction parts calls from their results                          1014
    an input is lost                                                      118
    a policy's change of arguments is lost                                 19
    a hook's denial of a response is not heeded                           648
    equal responses are told too early                                    231

A life runs the real Agent, Session and loop. Only the edges are simulated: event loop, clock, store, model, tools, persons.
"""
