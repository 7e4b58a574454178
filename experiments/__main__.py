"""``python -m experiments``, in a checkout."""

from experiments.commands import app
from lvd.cli.app import main

if __name__ == "__main__":
    main(app)
