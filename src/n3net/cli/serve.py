"""n3net serve: the page."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="To listen on; 0 takes any that is free. (default: 8421, or a free one)"),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    host: Annotated[
        str,
        typer.Option(help="Address of this machine to listen on. Others than 127.0.0.1 let other machines in."),
    ] = "127.0.0.1",
    max_megapixels: Annotated[float, typer.Option(min=0.001, max=400, help="Refuse larger images.")] = 100,
) -> None:
    """Open a page in the browser: restore photographs, see whom a patch chooses, match two photographs.

    Everything stays on this machine, and nothing is fetched from elsewhere. Who has the whole address that is printed,
    with the token in it, can use the page; nobody else can. Ctrl-C stops it and removes all it has been given.

    n3net serve

    n3net serve --port 9000 --no-browser
    """
    from n3net.serve.limits import Limits
    from n3net.serve.running import serve

    def tell(address: str) -> None:
        typer.echo(f"The page is at\n\n  {address}\n\nCtrl-C stops it.")

    serve(host, port, not no_browser, Limits(megapixels=max_megapixels), tell)
