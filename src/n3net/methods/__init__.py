"""Methods that learn nothing: functions from an image to an image, and all of them by name."""
