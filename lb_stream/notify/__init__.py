"""Tells people of troubles: a process beside the job, which reads what `lbctl status` reads and is never waited for.

`opened` and `digest` are pure: troubles and times in, messages out. `targets` sends them, `watcher` goes round.
"""
