"""``python -m n3net``."""

from n3net.cli import main

if __name__ == "__main__":
    main()
