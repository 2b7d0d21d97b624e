"""Packages that only some commands need, imported when they are needed."""

import importlib
from typing import Any

from ..errors import UserError


def require(*names: str, purpose: str, extra: str) -> list[Any]:
    """The modules of these names, or one line that says how to get what is missing.

    Args:
        names: of modules, such as "matplotlib.figure".
        purpose: what needs them; begins the message.
        extra: of pdeplus that installs them.
    """
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        missing = (error.name or names[0]).partition(".")[0]
        raise UserError(f"{purpose} needs {missing}: pip install 'pdeplus[{extra}]'") from error
