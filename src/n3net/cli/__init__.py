"""The command line: one file a command, imported when it is called."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

# Command -> (module with a function `command` or a typer app `app`, what `n3net --help` says of it).
COMMANDS = {
    "denoise": ("n3net.cli.denoise", "Remove noise from image files."),
    "upscale": ("n3net.cli.upscale", "Upscale image files."),
    "match": ("n3net.cli.match", "Match two photographs: correct matches, the relative pose, a picture."),
    "filter": ("n3net.cli.filter", "Tell right matches from wrong ones, whatever found them."),
    "serve": ("n3net.cli.serve", "Open a page in the browser that does the above."),
    "train": ("n3net.cli.train", "Train a network, or go on training it."),
    "data": ("n3net.cli.data", "Make files of matches, to train and evaluate networks for correspondences."),
    "models": ("n3net.cli.models", "List the networks: size, and the paper's row they stand for."),
    "weights": ("n3net.cli.weights", "List, inspect, import, verify or fetch trained weights."),
    "eval": ("n3net.cli.eval", "Measure models on images or matches, with fixed seeds and stated protocols."),
    "reproduce": ("n3net.cli.reproduce", "The paper's tables, beside what is measured here."),
    "inspect": ("n3net.cli.inspect", "Show what the N3 blocks of a model have learned, on an image."),
    "bench": ("n3net.cli.bench", "Measure speed and memory against PyTorch, DnCNN and the 2018 way, as ratios."),
    "demo": ("n3net.cli.demo", "Show what n3net does, in two pictures."),
    "help": ("n3net.cli.help", "Show the documentation in the terminal."),
}


class _Lazy(TyperGroup):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module: Any = importlib.import_module(COMMANDS[cmd_name][0])
        if hasattr(module, "app"):
            command = typer.main.get_command(module.app)
        else:
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command()(module.command)
            command = typer.main.get_command(app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


root = typer.Typer(
    cls=_Lazy,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from n3net.version import __version__

        print(f"n3net, version {__version__}")
        raise typer.Exit


@root.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """n3net: differentiable nearest neighbours, and what can be done with them.

    'n3net COMMAND --help' explains a command, 'n3net help' shows the documentation.
    """


def _in_a_thread(about: Any) -> None:
    """TensorBoard's thread that writes to a disk which is full or gone; whoever gives it the next figure is told."""
    if not issubclass(about.exc_type, OSError):
        threading.__excepthook__(about)


def main() -> None:
    """Entry point: errors of the user and of files are one line on stderr and exit code 2, Ctrl-C is exit code 130."""
    from n3net.checking import printable
    from n3net.errors import UserError
    from n3net.memory import is_lack_of_memory, reuse_freed_memory

    reuse_freed_memory()
    warnings.filterwarnings("ignore", module=r"PIL\.")  # about metadata that it can do without
    threading.excepthook = _in_a_thread
    for stream in (sys.stdout, sys.stderr):  # names of files may hold what a terminal cannot write
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # tidies up, as Ctrl-C does
    try:
        result = typer.main.get_command(root)(prog_name="n3net", standalone_mode=False)
    except UserError as error:
        print(f"n3net: {printable(error)}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a closed pipe is not among them, typer ends quietly then
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"n3net: {printable(where)}{error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        print("n3net: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if is_lack_of_memory(error):
            print("n3net: out of memory; try smaller images, tiles or batches", file=sys.stderr)
            sys.exit(2)
        if not hasattr(error, "show"):  # what typer raises for a wrong command line can show itself
            raise
        error.show()
        sys.exit(getattr(error, "exit_code", 2))
    if result == 130:  # what typer makes of Ctrl-C
        print("n3net: interrupted", file=sys.stderr)
    sys.exit(result if isinstance(result, int) else 0)
