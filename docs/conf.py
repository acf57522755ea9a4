"""The site: `make docs`. Pages are the Markdown files here, the API comes from docstrings, and nothing is fetched.

Equations become MathML when the site is built, so that browsers need no script and no fonts for them.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from n3net.version import __version__  # noqa: E402

project = "n3net"
author = "the authors of n3net"
project_copyright = "the authors of n3net, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
napoleon_custom_sections = ["Shape"]
maximum_signature_line_length = 100
copybutton_exclude = ".linenos, .gp, .c1"  # comments behind commands

highlight_language = "bash"  # of blocks that do not say what they are: commands
html_theme = "furo"
html_title = "n3net"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
exclude_patterns = ["static", "images"]

# Files of the repository that are pages of the site as well.
ELSEWHERE = {
    "CHANGELOG.md": "site/changelog",
    "CONTRIBUTING.md": "site/contributing",
    "README.md": "site/figures",
    "SECURITY.md": "site/security",
    "src/n3net/weights/files": "site/cards",
}
LABEL = re.compile(r"\[(?:docs/)?[\w-]+\.md\](?=\(([\w./-]+\.md)[)#])")  # a file's name, which is no word for people
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")


def complete(app: Any, name: str, source: list[str]) -> None:
    """Fills pages that stand elsewhere, turns links to files into links to pages, and gives the first page its menu."""
    text, folder = source[0], Path("docs", name).parent
    file = next((file for file, page in ELSEWHERE.items() if page == name), None)
    if file is not None:
        text, folder = _elsewhere(file), Path(file) if (ROOT / file).is_dir() else Path()
    text = LABEL.sub(lambda m: f"[{_title(folder / m[1])}]", text)
    text = LINK.sub(lambda m: _target(folder, m[1], name), text)
    source[0] = text + _menu(text) if name == "index" else text


def _elsewhere(file: str) -> str:
    path = ROOT / file
    if path.is_dir():
        cards = [card.read_text() for card in sorted(path.glob("*.md")) if card.stem != "README"]
        return "\n".join(["# Cards of the weights", *(re.sub("(?m)^#", "##", card) for card in cards)])
    if file == "README.md":  # what it has measured; all else is on pages of its own
        figures = re.search("(?ms)^## How good$.*(?=^## Development$)", path.read_text())
        assert figures is not None, "README.md has no part from 'How good' to 'Development'"
        return "# How good, how fast, how exact\n\n" + figures[0]
    return path.read_text()


def _title(file: Path) -> str:
    return (ROOT / file).read_text().splitlines()[0].removeprefix("# ")


def _target(folder: Path, link: str, name: str) -> str:
    """A link of a file in ``folder`` as one of the page ``name``: to the page that shows it, or to a file."""
    file = os.path.normpath(folder / link)
    if file in ELSEWHERE:
        file = f"docs/{ELSEWHERE[file]}.md"
    return Path(os.path.relpath(file, Path("docs", name).parent)).as_posix()


def _menu(text: str) -> str:
    """The pages that the first one lists, under its headings."""
    menu = ""
    for part in re.split("(?m)^## ", text)[1:]:
        pages = re.findall(r"(?m)^- \[([^]]+)\]\(([^)#]+)\.md[)#]", part)
        entries = "\n".join(f"{title} <{page}>" for title, page in pages)
        menu += f"\n```{{toctree}}\n:hidden:\n:caption: {part.splitlines()[0]}\n\n{entries}\n```\n"
    return menu


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("source-read", complete)
