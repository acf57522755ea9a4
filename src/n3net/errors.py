"""What a person did that cannot work, as opposed to a fault of the program."""


class UserError(Exception):
    """A message for the person at the keyboard: what was given, what was expected, what to do; no traceback."""
