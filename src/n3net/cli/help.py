"""n3net help"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

# Commands whose page has another name.
PAGES = {
    "filter": "match",
    "serve": "page",
    "train": "training",
    "data": "correspondence-training",
    "eval": "evaluation",
    "reproduce": "tables",
    "inspect": "evaluation",
    "bench": "fast",
    "demo": "install",
    "help": "install",
}
HERE = Path(__file__).parents[1]


def folder() -> Path:
    """Where the pages are: in the package, or in the clone that it is run from."""
    return next((f for f in (HERE / "pages", HERE.parents[1] / "docs") if (f / "index.md").is_file()), HERE / "pages")


def topics() -> list[str]:
    return sorted(path.stem for path in folder().glob("*.md"))


def command(
    topic: Annotated[
        str, typer.Argument(help="A page or a command; without it, the list of pages.", autocompletion=topics)
    ] = "index",
) -> None:
    """Show a page of the documentation in the terminal, without a network.

    n3net help

    n3net help layer

    n3net help denoise | less -R

    'n3net COMMAND --help' explains the options of a command.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    from n3net.checking import nearest, shown
    from n3net.errors import UserError

    known = topics()
    name = topic.removesuffix(".md")
    name = name if name in known else PAGES.get(name, name)
    if name not in known:
        raise UserError(
            f"help: there is no page {shown(topic)}{nearest(name, [*known, *PAGES])} ('n3net help' lists them)"
        )
    text = (folder() / f"{name}.md").read_text(encoding="utf-8")
    Console().print(Markdown(plain(contents(text) if name == "index" else text), hyperlinks=False))


def contents(text: str) -> str:
    """The first page with what it lists by the words to ask for it."""
    return re.sub(r"(?m)^- \[([^]]+)\]\(([\w-]+)\.md\)", r"- `n3net help \2` \1", text)


def plain(text: str) -> str:
    """Without what a terminal cannot show: pictures, places of links, equations; blocks of code stay as they are."""
    parts = re.split(r"(?ms)(^```.*?^```$)", text)
    return "".join(part if part.startswith("```") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    text = re.sub(r"(?m)^!\[[^]]*\]\([^)]*\)\n+", "", text)
    text = re.sub(r"\[([^]\[]+)\]\([^)\s]+\)", r"\1", text)
    text = re.sub(r"(?ms)^\$\$\n(.*?)^\$\$$", r"```tex\n\1```", text)
    return re.sub(r"(?<![\w$`])\$([^$\n`]+)\$(?![\w$])", r"`\1`", text)
