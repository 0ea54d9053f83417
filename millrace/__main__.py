"""The start of the `millrace` command, also as `python -m millrace`."""

import importlib.util
import os
import sys

PACKAGES = ("schemas", "beam_jobs", "trainer")
ADVICE = "hides the package of Millrace of that name. Rename it, or run this from another folder"


def hiding() -> str | None:
    """A file or folder that Python finds first under the name of a package of Millrace; None if there is none."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in PACKAGES:
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # it was imported, and is nothing that Python has found
            continue
        places = [] if spec is None else [*(spec.submodule_search_locations or ()), spec.origin]
        if places and os.path.realpath(places[0] or "") != os.path.realpath(os.path.join(here, name)):
            return places[0]
    return None


def main() -> int:
    """Runs the command. Returns the exit code."""
    found = hiding()
    if found is not None:
        print(f"error: {found}: {ADVICE}", file=sys.stderr)
        return 2
    by_name = os.path.basename(sys.argv[0]) != "__main__.py"
    try:
        from millrace import cli

        return cli.main(prog="millrace" if by_name else "python -m millrace")
    except KeyboardInterrupt:  # before the command's own work, which says what became of it
        print("error: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
