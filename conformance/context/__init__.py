"""What a check sees: its registration, its context, the session that all share, and verdicts.

`check` registers a check; `context` is what it sends and judges with; `session` is the state of one
run; `answers` reads answers; `history`, `created` and `choices` keep what a run has sent, made and
learned.
"""
