"""Celery and kombu on fifo: `broker_url = "fifo://host:port"`, in an app that is not changed.

Owns the transport, which an entry point registers (`registration.py`); extra `celery`. Built on the
public client. Must not know a node.
"""
