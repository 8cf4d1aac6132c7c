"""``python -m ksched``."""

from ksched.cli import main

if __name__ == "__main__":
    main()
