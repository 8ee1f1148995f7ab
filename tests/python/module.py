"""What the tests of the Python module share: a folder with a tiny run, the program beside the module.

    PYTHON TEST_FILE PATH_OF_HEDDLE [FOLDER_OF_THE_PACKAGE]

Without the second argument the module that is installed is tested. The exit status is 77 where no module is there.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
arguments = [sys.argv.pop(2)] if len(sys.argv) > 2 and pathlib.Path(sys.argv[2]).is_dir() else []
if arguments:
    sys.path.insert(0, arguments[0])
from program import HEDDLE, Program  # noqa: E402

try:
    import heddle
except ModuleNotFoundError as error:
    print(f"skipped: {error}; build the module with nanobind there, or install a wheel")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLOCKS = {
    "estimate_s",
    "exact_s",
    "estimates_per_s_per_core",
    "seconds",
    "searched_s",
}  # of the answer, not of the job


def timeless(answer):
    """An answer without the durations of its own making."""
    if isinstance(answer, dict):
        return {key: timeless(each) for key, each in answer.items() if key not in CLOCKS}
    return [timeless(each) for each in answer] if isinstance(answer, list) else answer


class Module(Program):
    maxDiff = 4000

    def told(self, *arguments, status=0):
        """The answer of the program to a command with --json."""
        return json.loads(self.heddle(*map(str, arguments), "--json", status=status).stdout)

    def same(self, answer, *arguments, status=0):
        """The function's answer is the command's, and every key of it is an attribute."""
        self.assertEqual(timeless(answer.data), timeless(self.told(*arguments, status=status)))
        for key, each in answer.data.items():
            self.assertTrue(hasattr(answer, key), f"{type(answer).__name__} lacks {key}")
            if not isinstance(each, (dict, list)):
                self.assertEqual(getattr(answer, key), each)
