"""What a run tells: a live line or plain lines, ``log.jsonl``, and TensorBoard where it is installed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from n3net.io.files import writing

if TYPE_CHECKING:
    from torch import Tensor

PLAIN_EVERY = 30.0  # seconds between lines where there is no terminal


class Reporter:
    """Shows and records the figures of a run; a process that is not the first says nothing.

    Args:
        run: folder of the run.
        step: that the run starts from; later lines of an earlier attempt are removed from the log.
        active: whether this process speaks.
    """

    def __init__(self, run: Path, step: int, active: bool = True) -> None:
        self.active, self.console = active, Console(highlight=False, soft_wrap=True)
        self._last_line = 0.0
        if not active:
            return
        self._log = run / "log.jsonl"
        _truncate(self._log, step)
        self._file = self._log.open("a", encoding="utf-8")
        self._board = _board(run / "tensorboard", step)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._bar = self._progress.add_task("step 0", total=1.0, figures="")
        self._progress.start()

    def say(self, text: str) -> None:
        """A line for people."""
        if self.active:
            self.console.print(text, markup=False)

    def show(self, step: int, fraction: float, figures: dict[str, str]) -> None:
        """The state of the run: live on a terminal, else a line from time to time."""
        if not self.active:
            return
        text = "  ".join(f"{name} {value}" for name, value in figures.items())
        self._progress.update(self._bar, completed=fraction, description=f"step {step}", figures=text)
        if not self.console.is_terminal and time.monotonic() - self._last_line > PLAIN_EVERY:
            self._last_line = time.monotonic()
            self.say(f"step {step}  {100 * fraction:.1f} %  {text}")

    def record(self, step: int, kind: str, figures: dict[str, Any]) -> None:
        """Figures of a step, for ``log.jsonl`` and TensorBoard."""
        if not self.active:
            return
        self._file.write(json.dumps({"step": step, "kind": kind, **figures}) + "\n")
        self._file.flush()
        for name, value in figures.items() if self._board is not None else ():
            self._board.add_scalar(f"{kind}/{name}", value, step)

    @property
    def shows_pictures(self) -> bool:
        """Whether anybody can see them."""
        return self.active and self._board is not None

    def picture(self, step: int, pictures: dict[str, Tensor]) -> None:
        """Pictures of the same height, (C, H, W) in [0, 1] each, side by side in TensorBoard."""
        if self.shows_pictures and pictures:
            import torch

            sheet = torch.cat([picture.detach().float().clamp(0, 1).cpu() for picture in pictures.values()], -1)
            self._board.add_image(f"validation/{', '.join(pictures)}", sheet, step)

    def close(self) -> None:
        if self.active:
            self._progress.stop()
            self._file.close()
            if self._board is not None:
                self._board.close()


def _board(folder: Path, step: int) -> Any:
    """TensorBoard's writer, where it is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step)


def duration(seconds: float) -> str:
    """Time for people.

    >>> duration(5000)
    '1h23m'
    """
    if seconds < 60:
        return f"{seconds:.0f}s"
    minutes = int(seconds // 60)
    return f"{minutes // 60}h{minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m{int(seconds % 60):02d}s"


def _truncate(log: Path, step: int) -> None:
    if not log.is_file():
        return
    kept = []
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue  # a line that was being written when the run was killed
    with writing(log, force=True) as file:
        file.write("".join(kept).encode())
