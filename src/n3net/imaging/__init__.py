"""What is done to pictures without a network: colour, resizing, degradation, demosaicking, comparison pictures."""
