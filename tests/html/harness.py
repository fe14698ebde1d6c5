"""Runs every test of checks.py on one browser. Started by `run`; not meant to be started by hand."""
import sys
import traceback

import checks
from stage import WORK, Stage


def main():
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    WORK.mkdir(parents=True, exist_ok=True)
    stage = Stage()
    passed = failed = 0
    for name, test in vars(checks).items():
        if not name.startswith("test_") or part not in name:
            continue
        try:
            test(stage)
            passed += 1
            print(f"pass  {name[5:].replace('_', ' ')}", flush=True)
        except Exception:  # a browser's trouble is a test's failure too
            failed += 1
            print(f"FAIL  {name[5:].replace('_', ' ')}", flush=True)
            print("      " + traceback.format_exc(limit=-2).strip().replace("\n", "\n      "), flush=True)
        for context in stage.browser.contexts:
            context.close()
    stage.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
