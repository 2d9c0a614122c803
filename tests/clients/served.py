"""`kvasir serve` with the bundled model, for the tests of this folder.

Deliberately no test framework beyond Python's own: the clients are what is optional.
"""
import contextlib
import importlib.util
import subprocess
import sys
import threading
import unittest

API_KEY = "a key of the client tests"
SKIPPED = 77  # what CTest is told when there is nothing to test with


@contextlib.contextmanager
def serve(program, *options):
    """Starts the server on a free port; yields its address without a path."""
    process = subprocess.Popen(
        [program, "serve", "--port", "0", "--api-key", API_KEY, *options],
        stderr=subprocess.PIPE, text=True)
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("listening on "):
                break
        else:
            raise RuntimeError("the server did not start:\n" + "".join(said))
        # Somebody must read its log, or it waits.
        reader = threading.Thread(target=process.stderr.read)
        reader.start()
        yield said[-1].split()[-1]
        process.terminate()
        if process.wait(timeout=60) != 0:
            raise RuntimeError(f"the server ended with {process.returncode}")
        reader.join()
    finally:
        process.kill()


def main(package, options=()):
    """Runs the tests of the calling program against `kvasir`, its first argument."""
    if importlib.util.find_spec(package) is None:
        print(f"skipped: the Python package '{package}' is not installed")
        sys.exit(SKIPPED)
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM [TEST ...]")
    with serve(sys.argv.pop(1), *options) as address:
        unittest.address = address
        outcome = unittest.main(module="__main__", exit=False)
    sys.exit(0 if outcome.result.wasSuccessful() else 1)
