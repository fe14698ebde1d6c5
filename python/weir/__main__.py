"""The command: `weir` after `pip install`, and `python -m weir`. The process becomes the one that the package brought."""
import os
import sys

COMMAND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "weir")


def main():
    try:
        os.execv(COMMAND, ["weir", *sys.argv[1:]])
    except OSError as error:
        # As env(1): it is there and cannot be run, or it is not there.
        print(f"weir: {COMMAND}: {error.strerror}; reinstall weir-gpu", file=sys.stderr)
        return 126 if os.path.exists(COMMAND) else 127


if __name__ == "__main__":
    sys.exit(main())
