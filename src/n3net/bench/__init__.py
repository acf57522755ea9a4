"""Speed and memory, each figure in a process of its own: a ratio of things timed in turn, or MiB, or seconds.

``figures`` lists them in order; ``inference``, ``training``, ``engine``, ``commands`` and ``correspondence`` say what
is measured, ``harness`` how often, ``measure`` with what.
"""
