"""The program `heddle` that lies in the package."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def program() -> str:
    """Its path."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "heddle")


def main() -> NoReturn:
    """Becomes the program, with this process's arguments."""
    try:
        os.execv(program(), ["heddle", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"heddle: {program()} can't be started: {error.strerror}")
