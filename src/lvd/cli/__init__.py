"""The command line: parses, calls, prints."""

import sys

from lvd.cli.app import main

__all__ = ["main", "run_chemprop"]


def run_chemprop() -> None:
    """The command ``lvd-chemprop``: chemprop's own, with lvd as an uncertainty method."""
    try:
        from lvd.cli import chemprop_plugin
    except ModuleNotFoundError as error:
        from lvd.molecules.smiles import EXTRA

        print(f"error: lvd-chemprop needs chemprop ({error}): {EXTRA}", file=sys.stderr)
        sys.exit(2)
    chemprop_plugin.main()
