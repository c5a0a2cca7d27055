"""The suites of others against fifo: kombu, Celery, dramatiq, taskiq, from their source packages.

`make celery-suites` downloads them, runs them in an environment of their own, and writes what came
of it into the pages. Owns nothing of theirs: `fixtures` is what they ask a broker for.
"""
