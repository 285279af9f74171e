"""What the built programs say of themselves: their flags, and what they find wrong with a configuration."""

import functools
import json
import pathlib
import re
import subprocess
import tempfile

# A name that is followed by a type has a value; what else may follow is no type.
OPTION = re.compile(r"^ {2,}((?:-\w,)?--[\w-]+(?:,--[\w-]+)*)"
                    r"( (?!Excludes:|Needs:|REQUIRED|\(Env:|\.\.\.)\S+)?")


class Programs:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    @functools.cache
    def _help(self, words):
        program = self.folder / words[0]
        if not program.exists():
            return None
        done = subprocess.run([program, *words[1:], "--help"], capture_output=True, text=True)
        if done.returncode != 0:
            return None
        known = {}
        for line in done.stdout.splitlines():
            found = OPTION.match(line)
            for name in found[1].split(",") if found else ():
                known[name] = found[2] is not None
        return known

    def help_of(self, words):
        """Flags that the command of `words` knows, each with whether it has a value (None: there is no such
        command), and the words that follow its name."""
        name = [words[0]]
        if words[0] == "weft":
            name = words[:3] if words[1] in ("checkpoint", "cluster", "config") else words[:2]
        return self._help(tuple(name)), words[len(name):]

    def config_problems(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "run.json")
            path.write_text(text, encoding="utf-8")
            done = subprocess.run([self.folder / "weft", "config", "check", path],
                                  capture_output=True, text=True)
        return done.stderr.splitlines() if done.returncode != 0 or done.stderr else []

    def plan(self, text, arguments):
        """weft plan of the configuration `text`, as JSON."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "run.json")
            path.write_text(text, encoding="utf-8")
            out = pathlib.Path(folder, "plan.json")
            subprocess.run([self.folder / "weft", "plan", path, *arguments, "--json", out],
                           check=True, stdout=subprocess.DEVNULL)
            return json.loads(out.read_text())
