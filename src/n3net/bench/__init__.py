"""Speed and memory, each figure a ratio within one run on one machine."""
