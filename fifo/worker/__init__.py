"""Workers: handlers as tasks, and the process that runs them. `import fifo` gives its names.

Owns `App`, typed arguments, the settlement of each outcome, drains, processes and periodic tasks.
Stands on the client's public names only; must not know the protocol, or a node.
"""

from fifo.worker.app import App
from fifo.worker.dependencies import Depends
from fifo.worker.errors import BadTask, CannotLoad, ChildDied, Retry, TaskError, TimeLimit
from fifo.worker.middleware import Middleware, Run
from fifo.worker.tasks import Task
from fifo.worker.worker import Worker

__all__ = [
    "App",
    "BadTask",
    "CannotLoad",
    "ChildDied",
    "Depends",
    "Middleware",
    "Retry",
    "Run",
    "Task",
    "TaskError",
    "TimeLimit",
    "Worker",
]
