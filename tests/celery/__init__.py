"""The transport of kombu and Celery: fifo/celery."""
