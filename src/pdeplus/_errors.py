"""The errors that the command line answers in one line, without a traceback."""


class UserError(ValueError):
    """Something the user can put right (exit code 2); the message names the value and the way out."""


class RunFailed(RuntimeError):
    """A run that could not go on (exit code 1); the message says where it stopped and what to try."""
