"""The command line: parses, calls, prints."""

from lvd.cli.app import main

__all__ = ["main"]
