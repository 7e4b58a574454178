"""Drawings of molecules for the HTML report."""

from __future__ import annotations

import re
from typing import Any

from lvd._validation import InputError

WIDE, HIGH = 180, 130
LONGEST = 400
"""Longer SMILES are polymers or proteins, whose drawings are unreadable."""

DEFAULT_STYLES = (
    "fill-rule:evenodd|stroke-linecap:butt|stroke-linejoin:miter|stroke-opacity:1|fill-opacity:1|"
    "font-style:normal|font-weight:normal|stroke:none|text-anchor:start"
)


def draw_molecule(smiles: str) -> str | None:
    """An SVG drawing by RDKit; None if RDKit cannot read the molecule.

    The SMILES text itself is not included.
    """
    try:
        from rdkit import Chem, rdBase
        from rdkit.Chem.Draw import rdMolDraw2D
    except ModuleNotFoundError:
        raise InputError(
            "drawing molecules needs RDKit: install it with pip install 'lvd[molecules]', or leave smiles out"
        ) from None
    with rdBase.BlockLogs():
        molecule: Any = Chem.MolFromSmiles(smiles) if 0 < len(smiles) <= LONGEST else None
        if molecule is None:
            return None
        canvas: Any = rdMolDraw2D.MolDraw2DSVG(WIDE, HIGH, WIDE, HIGH, True)
        canvas.drawOptions().clearBackground = False
        rdMolDraw2D.PrepareAndDrawMolecule(canvas, Chem.RemoveHs(molecule))
        canvas.FinishDrawing()
    return compact_svg(canvas.GetDrawingText()).replace("<svg", "<svg class='molecule'", 1)


def compact_svg(svg: str) -> str:
    """The same drawing in fewer bytes: without XML header, comments, classes and default styles, to one decimal.

    Styles become attributes, which also work on a page that forbids inline styles; black becomes the text colour.
    """
    svg = re.sub(
        r"<!--.*?-->|\s(?:class|xmlns:\w+|xml:space)='[^']*'", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )
    svg = re.sub(rf"(?:{DEFAULT_STYLES});?(?=[^<]*>)", "", svg)
    svg = re.sub(r"style='([^']*)'", lambda style: _as_attributes(style.group(1)), svg)
    svg = svg.replace("#000000", "currentColor")
    svg = re.sub(r"\d+\.\d+", lambda number: f"{float(number.group()):.1f}".removesuffix(".0"), svg)
    return re.sub(r"\s+", " ", svg).replace("> <", "><")


def _as_attributes(style: str) -> str:
    """``fill:none;stroke:#4284F4`` as ``fill='none' stroke='#4284F4'``."""
    pairs = (one.split(":", 1) for one in style.split(";") if ":" in one)
    return " ".join(f"{name.strip()}='{value.strip()}'" for name, value in pairs)
