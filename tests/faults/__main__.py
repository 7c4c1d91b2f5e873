"""``python -m tests.faults --source directory --seconds 600``: random faults, and a verdict.

It runs in namespaces of its own, whose processes and mounts end with it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.faults import checker
from tests.faults.history import GET, LOSE, Operation
from tests.faults.plague import Plague
from tests.faults.trial import SOURCES, Trial
from tests.faults.values import TORN
from tests.hosts.network import hosts_on_a_switch, why_not

_NAMESPACES = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
_INSIDE = "FAULTS_INSIDE"

# Bytes that the servers and the bucket may keep in the directory that runs full.
_DISK = 2 << 30

# Errors that a client may get of faults. `unfinished` is that of a client which was killed. What is
# killed in a handshake is taken for something else that listens there.
_ALLOWED = {"ServerLostError", "ServerRestartedError", "RequestTimeoutError", "ConnectError"}
_ALLOWED |= {"NotAServerError", "StorageError", "unfinished"}
_ALLOWED |= {"UnknownOutcomeError", "ChangeLostError", "ChangeTimeoutError"}

# Seconds that no operation may take, whatever happens: several times the time-outs.
_HANGS = 60.0


def main() -> int:
    """Carry out a trial; return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--source", choices=SOURCES, required=True)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument(
        "--only", default="", help="faults whose names have this, such as 'servers'"
    )
    parser.add_argument("--decoded", action="store_true", help="chunks, which the servers decode")
    parser.add_argument("--folder", type=Path, help="for records (default: build/faults/SOURCE)")
    arguments = parser.parse_args()
    problem = checker.why_not()
    if problem is not None:
        parser.error(problem)
    if _INSIDE not in os.environ:
        checker.build()
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        # The shell is the first process of its namespace, and so reaps those that are left over.
        command = ["unshare", *user, *_NAMESPACES, "sh", "-c", '"$@"; exit $?', "sh"]
        command += [sys.executable, "-m", "tests.faults", *sys.argv[1:]]
        os.execvpe(command[0], command, {**os.environ, _INSIDE: "1"})
    problem = why_not()
    if problem is not None:
        parser.error(problem)
    folder = (arguments.folder or Path("build/faults") / _name_of(arguments)).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "disk").mkdir(parents=True)
    return _run(arguments, folder)


def _name_of(arguments: argparse.Namespace) -> str:
    return f"{arguments.source}{'-decoded' if arguments.decoded else ''}"


def _run(arguments: argparse.Namespace, folder: Path) -> int:
    disk = folder / "disk"
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    print(f"seed {arguments.seed}, records in {folder}", flush=True)
    with hosts_on_a_switch(4) as hosts:
        trial = Trial(arguments.source, list(hosts), folder, disk, decoded=arguments.decoded)
        try:
            trial.start()
            faults = [one for one in trial.faults() if arguments.only in one.name]
            plague = Plague(faults, arguments.seed)
            plague.rage(arguments.seconds, trial.watch)
            trial.finish()
        finally:
            trial.close()
        operations = list(trial.operations())
    (folder / "faults.log").write_text("\n".join(plague.log) + "\n")
    found = _judge(arguments.source, operations, folder, trial.problems)
    found["faults"] = dict(sorted(plague.counts.items()))
    if arguments.decoded:
        found["decoded"] = trial.decoded
    (folder / "summary.json").write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))
    bad = ("problems", "violations", "torn", "hangs", "other errors", "unknown keys")
    return 1 if any(found[name] for name in bad) else 0


def _judge(
    source: str, operations: list[Operation], folder: Path, problems: list[str]
) -> dict[str, object]:
    verdict = checker.check(operations, folder, shared=source != "memory")
    asked = [one for one in operations if one.kind != LOSE]
    errors = Counter(one.error for one in asked if one.error)
    return {
        "source": source,
        "operations": dict(Counter(one.kind for one in asked)),
        "acknowledged or read": sum(not one.error for one in asked),
        "errors": dict(errors),
        "other errors": {name: errors[name] for name in errors.keys() - _ALLOWED},
        "checked keys": verdict.keys,
        "unknown keys": verdict.unknown,
        "violations": verdict.violations,
        "torn": sum(one.kind == GET and one.found == TORN for one in asked),
        "hangs": sum(one.seconds > _HANGS for one in asked),
        "longest": round(max((one.seconds for one in asked), default=0.0), 1),
        "problems": problems,
    }


if __name__ == "__main__":
    sys.exit(main())
