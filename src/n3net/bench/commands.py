"""``n3net denoise`` as a whole process, on large pictures that are made up."""

from __future__ import annotations

from PIL import Image

from n3net.bench.harness import Round, Sample
from n3net.bench.inference import forward
from n3net.bench.made_up import NOISE, picture, temporary_folder
from n3net.bench.measure import command_peak, command_seconds, timed
from n3net.models.preparing import prepare
from n3net.weights import load


def photo_overhead(height: int = 3000, width: int = 4000, crop: int = 1024) -> Round:
    """Time of the command beyond that of the network on as many pixels, as a fraction of the latter.

    The network's is that of crops before and after the command.
    """
    folder = temporary_folder()
    source, target = folder / "photo.jpg", folder / "out.jpg"
    Image.fromarray(picture(height, width, 3)).save(source, quality=95)
    network = forward(prepare(load("color")), crop)
    network()

    def one_round() -> Sample:
        crops = [timed(network) for _ in range(2)]
        whole = command_seconds(["denoise", str(source), "-o", str(target), "--sigma", f"{NOISE:g}", "--force"])
        crops += [timed(network) for _ in range(2)]
        alone = sum(crops) / len(crops) * height * width / crop**2
        return Sample(whole / alone - 1, {"n3net denoise (s)": whole, "network (s)": alone})

    return one_round


def large_image(side: int = 10_000) -> Round:
    """MiB that the command needs for a gray picture."""
    folder = temporary_folder()
    source, target = folder / "large.png", folder / "out.png"
    Image.fromarray(picture(side, side, 1)).save(source, compress_level=1)
    arguments = ["denoise", str(source), "-o", str(target), "--sigma", f"{NOISE:g}", "--force"]
    return lambda: Sample(command_peak(arguments))
