"""From `module:app` on a command line to the App.

Owns the import and what is said of one that fails. Must not know what is done with the app.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback

from fifo.worker.app import App
from fifo.worker.errors import CannotLoad


def load(target: str) -> App:
    """Import the app that `module:name` names, from the current folder too. Raises CannotLoad."""
    module_name, _, name = target.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        raise CannotLoad(f"{target!r:.80}: write module:app, as in orders:app for orders.py")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            hint = "" if name else "; write module:app, as in orders:app for orders.py"
            raise CannotLoad(
                f"there is no module {error.name!r} in {folder} or sys.path{hint}"
            ) from error
        raise CannotLoad(_why(module_name, error)) from error
    except (Exception, SystemExit) as error:
        raise CannotLoad(_why(module_name, error)) from error
    apps = {key: value for key, value in vars(module).items() if isinstance(value, App)}
    if not name and len(apps) == 1:
        return next(iter(apps.values()))
    found = getattr(module, name, None) if name else None
    if isinstance(found, App):
        return found
    known = ", ".join(f"{module_name}:{key}" for key in apps) or "no fifo.App"
    what = "which of its apps?" if not name else f"{name!r:.80} is no fifo.App there"
    raise CannotLoad(f"module {module_name}: {what}; it has {known}")


def _why(module_name: str, error: BaseException) -> str:
    """Format one line: the error, and the last place of the program's own that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    machinery = (__file__, importlib.__file__)
    own = [
        frame
        for frame in frames
        if frame.filename not in machinery and not frame.filename.startswith("<frozen")
    ]
    where = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    words = " ".join(str(error).split())
    return f"module {module_name} does not import: {type(error).__name__}: {words}{where}"
