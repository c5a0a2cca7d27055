"""Opening a journal: taking its folder, judging what is found, giving up what is lost.

Owns the judgement of damage. Must not know Raft's rules or peers.
"""
