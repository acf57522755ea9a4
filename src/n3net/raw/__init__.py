"""Raw data of cameras: its noise, its colour filter array, and files of it."""
