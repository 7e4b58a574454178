"""The cost of a row in each production setup: ``python -m benchmarks.ways``.

The model of `benchmarks.serve` predicts one row and 1,000 rows in Python, over HTTP, as a graph, through MLflow
and from the command line. Medians; setups with missing packages are left out.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pa_csv

import lvd
from benchmarks.serve import COMMAND, make_model, some_rows

SIZES = (1, 1000)
REPEATS = 30


def milliseconds(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """The median time of a call, excluding the first two."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        work()
        times.append(1000.0 * (time.perf_counter() - start))
    return float(np.median(times[2:]))


@contextmanager
def asking(model: Path) -> Iterator[Callable[[Any], Any]]:
    """Send rows to a dedicated server over one connection."""
    with subprocess.Popen([COMMAND, "serve", model, "--port", "0"], stdout=subprocess.PIPE) as server:
        try:
            port = int(re.search(rb":(\d+)/", server.stdout.readline())[1])
            connection = http.client.HTTPConnection("127.0.0.1", port)

            def ask(rows: Any) -> Any:
                connection.request("POST", "/predict", json.dumps(rows), {"Content-Type": "application/json"})
                return json.loads(connection.getresponse().read())

            yield ask
            connection.close()
        finally:
            server.terminate()


def in_graph(model: Path, folder: Path) -> Callable[[Any], Any]:
    import onnxruntime

    from lvd.tables.column_values import as_columns
    from lvd.tables.table_model import TableModel

    subprocess.run([COMMAND, "export", model, folder / "out.onnx"], check=True, stdout=subprocess.DEVNULL)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "out.onnx", options, providers=["CPUExecutionProvider"])
    encoder = TableModel.load(model).encoder
    coded = {n: encoder.transform(as_columns(some_rows(n))) for n in SIZES}
    return lambda rows: session.run(None, {"X": coded[len(rows)]})


def in_mlflow(model: Path, folder: Path) -> Callable[[Any], Any]:
    import mlflow
    import pandas as pd

    import lvd.mlflow

    lvd.mlflow.save_model(model, folder / "saved")
    scored = mlflow.pyfunc.load_model(str(folder / "saved"))
    frames = {n: pd.DataFrame(some_rows(n)) for n in SIZES}
    return lambda rows: scored.predict(frames[len(rows)])


def by_command(model: Path, folder: Path) -> Callable[[Any], Any]:
    def predict(rows: Any) -> None:
        table = folder / f"rows-{len(rows)}.csv"
        if not table.exists():
            import pyarrow as pa

            pa_csv.write_csv(pa.Table.from_pylist(rows), table)
        words = (COMMAND, "predict", model, table, "--out", folder / "priced.csv")
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    return predict


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = make_model(folder, 5000)
        reg = lvd.load(model)
        found = {"Python": [milliseconds(lambda n=n: reg.predict_interval(some_rows(n))) for n in SIZES]}
        with asking(model) as ask:
            found["HTTP"] = [milliseconds(lambda n=n: ask(some_rows(n))) for n in SIZES]
        for title, way in (("ONNX", in_graph), ("MLflow", in_mlflow)):
            with suppress(ImportError):
                work = way(model, folder)
                found[title] = [milliseconds(lambda n=n, work=work: work(some_rows(n))) for n in SIZES]
        command = by_command(model, folder)
        found["lvd predict"] = [milliseconds(lambda n=n: command(some_rows(n)), 3) for n in SIZES]
    print("| way | one row, ms | 1,000 rows, ms |\n|---|---|---|")
    for title, times in found.items():
        print(f"| {title} | {' | '.join(f'{one:.3g}' for one in times)} |")


if __name__ == "__main__":
    main()
