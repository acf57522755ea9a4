"""The command line: one file a command, imported when it is called."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click
import typer

# Command -> (module with a function `command` or a typer app `app`, what `n3net --help` says of it).
COMMANDS = {
    "bench": ("n3net.cli.bench", "Measure speed and memory against DnCNN and the 2018 way, as ratios."),
    "demo": ("n3net.cli.demo", "Show what n3net does, in a picture."),
}


class _Lazy(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module: Any = importlib.import_module(COMMANDS[name][0])
        if hasattr(module, "app"):
            command = typer.main.get_command(module.app)
        else:
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command()(module.command)
            command = typer.main.get_command(app)
        command.name = name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="n3net")
def root() -> None:
    """n3net: differentiable nearest neighbours, and what can be done with them.

    'n3net COMMAND --help' explains a command.
    """


def main() -> None:
    """Entry point: errors of the user are one line on stderr and exit code 2, Ctrl-C is exit code 130."""
    from n3net.errors import UserError

    try:
        root(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UserError as error:
        print(f"n3net: {error}", file=sys.stderr)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        print("n3net: interrupted", file=sys.stderr)
        sys.exit(130)
