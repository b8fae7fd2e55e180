"""What the tests of this folder that have parts share: expectations, and a main that runs what was asked for."""
import os
import sys
import tempfile

failures = []


def expect(condition, sentence):
    if not condition:
        failures.append(sentence)
        print(f"  FAILED: {sentence}", flush=True)


def main(parts, lacking):
    """NAME BUILD [PART...]; part(build, folder). lacking(build): why nothing can run here, or None."""
    build, functions = sys.argv[1], {f.__name__: f for f in parts}
    reason = lacking(build)
    if reason:
        print(f"{os.path.basename(sys.argv[0])}: skipped, {reason}")
        return 77
    for name in sys.argv[2:] or functions:
        print(f"{name}:", flush=True)
        with tempfile.TemporaryDirectory() as where:
            functions[name](build, where)
    return 1 if failures else 0
