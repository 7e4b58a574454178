"""What the site takes from the code: output of the pages' blocks, the commands' help, and docstrings."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import typer
from docutils import nodes
from executed import as_notebook, execute, missing_package
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from lvd.cli.app import app as command_line

HELP_WIDTH = 96
BARS = re.compile(r"(?<!`)(\|[\w -]+\|)(?!`)")
FIRST_TITLE = re.compile(r"^# .+\n", re.MULTILINE)
PARAMETER = re.compile(r"(?P<names>\w+(?:, \w+)*) : (?P<said>.+)")


class CommandHelp(SphinxDirective):
    """A section for every command of ``lvd``, with its help as the terminal shows it."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """The sections."""
        return [_section(name, text) for name, text in helps(typer.main.get_command(command_line), "lvd")]


def helps(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, str]]:
    """Name and help of a command and of those below it."""
    settings = command.context_settings | {"terminal_width": HELP_WIDTH, "max_content_width": HELP_WIDTH}
    context = command.make_context(name.rpartition(" ")[2], [], parent, resilient_parsing=True, **settings)
    yield name, command.get_help(context)
    for child in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from helps(command.get_command(context, child), f"{name} {child}", context)


def _section(name: str, text: str) -> nodes.section:
    section = nodes.section(ids=[nodes.make_id(name)], names=[name])
    section += nodes.title(name, "", nodes.literal(name, name))
    section += nodes.literal_block(text, text, language="text")
    return section


def show_output(app: Sphinx, docname: str, source: list[str]) -> None:
    """Run the blocks of a page that is written by hand, and show what they print below them."""
    text = source[0]
    if app.config.run_blocks and not missing_package(text):
        with tempfile.TemporaryDirectory() as folder:
            source[0] = execute(text, Path(folder))
    if docname.startswith("notebooks/") and docname != "notebooks/index" and app.builder.format == "html":
        name = f"{docname.rpartition('/')[2]}.ipynb"
        file = Path(app.outdir, "notebooks", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(as_notebook(text), encoding="utf-8")
        link = f'<p class="download"><a href="{name}" download>As a Jupyter notebook</a></p>'
        source[0] = FIRST_TITLE.sub(rf"\g<0>\n{link}\n", source[0], count=1)


def to_restructured_text(*given: Any) -> None:
    """What our docstrings write more plainly than the tools expect.

    ``name : what it is`` becomes a name and its description, as napoleon expects a type after the colon, and bars
    are absolute values, not substitutions.
    """
    lines = given[-1]  # after the application, kind, name, object and options
    result, inside = [], False
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        inside = line == "Parameters" if below.startswith("---") else inside
        found = PARAMETER.fullmatch(line) if inside else None
        result += [found["names"], f"    {found['said']}"] if found else [line]
    lines[:] = [BARS.sub(r"``\1``", line) for line in result]


def skip_others(app: Sphinx, what: str, name: str, member: object, *_: object) -> bool | None:
    """Leave out what scikit-learn adds to a class."""
    return True if str(getattr(member, "__module__", "")).startswith("sklearn") else None


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register all of it."""
    app.add_config_value("run_blocks", True, "env", bool)
    app.add_directive("command-help", CommandHelp)
    app.connect("source-read", show_output)
    app.connect("autodoc-skip-member", skip_others)
    app.connect("autodoc-process-docstring", to_restructured_text, priority=400)  # before napoleon
    return {"parallel_read_safe": True}
