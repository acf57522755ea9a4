"""What a run tells: a live line or plain lines, ``log.jsonl``, and TensorBoard where it is installed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from n3net.io.files import writing
from n3net.training.config import Config
from n3net.training.state import Pace, State

if TYPE_CHECKING:
    from torch import Tensor

PLAIN_EVERY = 30.0  # seconds between lines where there is no terminal


class Reporter:
    """Shows and records the figures of a run; a process that is not the first says nothing.

    Args:
        run: folder of the run.
        config: its settings.
        unit: what a batch has, in one word.
        step: that the run starts from; later lines of an earlier attempt are removed from the log.
        rank, world: number of this process, the first of which speaks, and how many there are.
    """

    def __init__(self, run: Path, config: Config, unit: str, step: int, rank: int = 0, world: int = 1) -> None:
        self.active, self.console = rank == 0, Console(highlight=False, soft_wrap=True)
        self._config, self._unit, self._world = config, unit, world
        self._last_line = 0.0
        if not self.active:
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

    def stepped(self, state: State, pace: Pace, fraction: float, left: float, waited: float) -> None:
        """After each step: the smoothed figures, the speed, the part of it spent waiting for data, what is left."""
        speed, waiting = pace.steps * self._config.batch_size / pace.seconds, waited / pace.seconds
        each = f" ({speed / self._world:.1f} each)" if self._world > 1 else ""
        shown = {name: f"{value:.4g}" for name, value in state.means.items()}
        shown |= {f"{self._unit}/s": f"{speed:.1f}{each}", "waiting": f"{waiting:.1%}", "left": duration(left)}
        self._show(state.step, fraction, "  ".join(f"{name} {value}" for name, value in shown.items()))
        if state.step % self._config.log_every == 0:
            self.record(state.step, "speed", {"items_per_second": speed, "waiting": waiting})

    def validated(self, step: int, scores: dict[str, float], took: float) -> None:
        """After each validation."""
        self.record(step, "validation", scores)
        text = "  ".join(f"{name} {value:.3f}" for name, value in scores.items())
        self.say(f"step {step}  validation  {text}  ({duration(took)})")

    def _show(self, step: int, fraction: float, text: str) -> None:
        """The state of the run: live on a terminal, else a line from time to time."""
        if not self.active:
            return
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
