"""Work on files: which ones, what is done with each, and what happens when one goes wrong."""
