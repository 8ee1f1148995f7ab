"""Errors and warnings. Each error has the one line that the program prints."""


class Error(Exception):
    """Something went wrong: a file, the machine, a rank. The text is one line, as the program prints it."""


class InputError(Error, ValueError):
    """An argument, a file or a key is not accepted. The text names the place, what was found, what is accepted."""


class OutOfMemoryError(Error, MemoryError):
    """The host's memory is exhausted."""


class BugError(Error):
    """A broken invariant of Heddle. Please report it."""


class HeddleWarning(UserWarning):
    """A line that the program prints as a warning."""
