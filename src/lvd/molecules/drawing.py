"""Drawings of molecules, for the page."""

from __future__ import annotations

import re
from typing import Any

from lvd._validation import InputError

WIDE, HIGH = 180, 130
LONGEST = 400
"""A longer SMILES is a polymer or a protein, whose drawing nobody could read."""

DEFAULT_STYLES = (
    "fill-rule:evenodd|stroke-linecap:butt|stroke-linejoin:miter|stroke-opacity:1|fill-opacity:1|"
    "font-style:normal|font-weight:normal|stroke:none|text-anchor:start"
)


def draw_molecule(smiles: str) -> str | None:
    """An SVG drawing made by RDKit; None for what it does not read as a molecule.

    The text of the SMILES is not part of the drawing.
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
    return compact_svg(canvas.GetDrawingText())


def compact_svg(svg: str) -> str:
    """The same drawing in fewer bytes: no XML header, comments, classes and default styles, and one decimal."""
    svg = re.sub(
        r"<!--.*?-->|\s(?:class|xmlns:\w+|xml:space)='[^']*'", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )
    svg = re.sub(rf"(?:{DEFAULT_STYLES});?(?=[^<]*>)", "", svg)
    svg = re.sub(r"\d+\.\d+", lambda number: f"{float(number.group()):.1f}".removesuffix(".0"), svg)
    return re.sub(r"\s+", " ", svg).replace("> <", "><")
