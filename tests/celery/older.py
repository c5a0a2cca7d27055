"""The app of workers of older code: it has none of the tasks of `app.py`, which it must not import,
for Celery shares tasks among the apps of a process."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("drill", broker=os.environ.get("DRILL_URL"))
app.conf.broker_connection_retry_on_startup = True
