"""The documentation site: ``sphinx-build -W --keep-going -b html docs docs/_build/html``."""

from __future__ import annotations

import sys
from pathlib import Path

import lvd

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "lvd"
author = "The lvd developers"
version = release = lvd.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "lvd_docs",
]
exclude_patterns = ["_build", "images/README.md"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
default_role = "literal"

# The site is built without the extras whose functions it describes.
autodoc_mock_imports = ["fastapi", "starlette", "uvicorn", "prometheus_client", "mlflow"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # shapes stand in the docstrings; the annotations are for the checker
napoleon_attr_annotations = False
napoleon_use_rtype = False

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["sortable.js"]
html_title = f"lvd {release}"
html_show_copyright = False
