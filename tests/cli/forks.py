"""Processes of the command line that are killed: at any time, or by themselves at a moment.

As a program it imports the library once, and makes a process of the command line for each request,
a line of JSON with the arguments of `Forks.run`. It answers with {"status", "seconds"}, the status
negative for a signal.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback


class Forks:
    """A process that makes others, as long as the context lasts."""

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def run(self, *words, log=os.devnull, moment=None, index=0, kill_after=None, report=True):
        """Runs a command, and returns its status and how long it took, in seconds.

        Args:
            *words: of the command.
            log: file that its output is appended to.
            moment: name of one of the moments, at which it is stopped.
            index: which time that it comes, or the like.
            kill_after: seconds after which it is killed.
            report: whether a finished training is reported on, with samples and a figure.
        """
        request = {
            "words": [str(word) for word in words], "log": str(log), "moment": moment,
            "index": index, "kill_after": kill_after, "report": report,
        }  # fmt: skip
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["status"], answer["seconds"]


def dies(owner, name, *, when, calls=1):
    """Makes the process die before a call of a function."""
    function, left = getattr(owner, name), [calls]

    def dying(*args, **options):
        is_meant = when(*args)
        left[0] -= is_meant
        if is_meant and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)

    setattr(owner, name, dying)


def commits(source, target, *_):
    return "orbax-checkpoint-tmp" in str(source) and pathlib.Path(target).name.isdigit()


def folder_is_made(index):
    from jaxformer.storage import DRAFT

    def moves(source, target):
        return DRAFT in str(source) and DRAFT not in str(target)

    dies(os, "replace", when=moves, calls=1 + index % 4)


def checkpoint_is_committed(index):
    dies(os, "rename", when=commits, calls=1 + index % 2)


def signal_in_compilation(index):
    """A signal comes while another shape is compiled, for the step of this index."""
    from jaxformer.training import loop
    from jaxformer.training.parallel import Program

    batch_at, compile_ = loop.batch_at, Program.compile

    def unseen(batches, step, parts):
        if step == index:
            Program.is_compiled, Program.compile = (lambda *_: False), signalling
        return batch_at(batches, step, parts)

    def signalling(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return compile_(*arguments)

    loop.batch_at = unseen


MOMENTS = {
    function.__name__: function
    for function in (folder_is_made, checkpoint_is_committed, signal_in_compilation)
}


def run_command(request):
    """Is the command: never returns."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv[1:] = request["words"]
    status = 1
    try:
        if request["moment"] is not None:
            MOMENTS[request["moment"]](request["index"])
        if not request["report"]:
            from jaxformer.cli.commands import train

            train._report = lambda *_: None
        from jaxformer.__main__ import main

        main()
        status = 0
    except SystemExit as stopped:
        status = stopped.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status)


def serve():
    import jaxformer.cli
    import jaxformer.runs
    import jaxformer.viz  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            run_command(request)
        limit = request["kill_after"]
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            if limit is not None and time.monotonic() - began > limit:
                os.kill(child, signal.SIGKILL)
                limit = None
            time.sleep(0.003)
        answer = {"status": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - began}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
