"""Image files as numpy arrays, with all that a file knows beside its pixels."""

from n3net.io.picture import FORMATS, SUFFIXES, Metadata, Picture, peak_of, to_type
from n3net.io.reading import MAX_PIXELS, image_size, read_image
from n3net.io.writing import write_image

__all__ = [
    "FORMATS",
    "MAX_PIXELS",
    "SUFFIXES",
    "Metadata",
    "Picture",
    "image_size",
    "peak_of",
    "read_image",
    "to_type",
    "write_image",
]
