"""Random faults against servers, producers and members of groups, and a judgement of what became of each message.

`plan` draws what happens from a seed, `runner` has it happen and records a `history`, `checker` judges that, by the
rules of `repeats` and `sequence`, too. Plan and rules are pure. `PYRMQ_CHAOS_SEED` chooses the seed of the run in the
default tests.
"""
