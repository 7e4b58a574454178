"""Ray (extra ``ray``): prediction for tables larger than one machine, and training on many processors.

Rows to predict pass through the cluster in order, in batches of the local engine's size, so every number has the
same bits as there, on the same kind of processor. Each actor loads the model once. If an actor dies it is
restarted and its batch repeated; a batch only depends on its own rows, so none is lost or duplicated.

Models that a fit trains independently of each other are tasks, with the seeds and thread counts that they have
without Ray, so the fitted model has the same bits. The task of a worker that dies is repeated.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from functools import partial
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import torch

from lvd._parallel import Jobs, Threads, training_by
from lvd._progress import announce
from lvd._typing import Levels, NDArray
from lvd._validation import InputError, check_positive
from lvd.tables.reading import check_same_columns, count_rows, iter_batches, numbered, read_schema
from lvd.tables.table_model import TableModel
from lvd.tables.writing import PredictReport, with_columns, write_predictions

ROW = "lvd: number of the row"
"""The column that carries row numbers between machines, for error messages."""

CPUS_PER_THREAD = 0.4
"""What an actor reserves per thread; with 0.9, two cores would have no room left for reading the files."""

CONNECT_SECONDS = 10.0

MOST_RETRIES = 3
"""How often a task is repeated after its worker died."""

AGAIN = "perhaps because memory ran out; start again, with fewer workers if so (finished runs are kept)"
SERVE = "from lvd.tables.distributed import answer_asked; answer_asked()"
"""The command of the process that Ray runs in."""
ENDING_SECONDS = 20.0


def import_ray() -> Any:
    """Import ``ray`` with its Data library."""
    try:
        import ray
        import ray.data
    except ModuleNotFoundError:
        raise InputError("engine='ray' needs Ray: pip install 'lvd[ray]'") from None
    return ray


@contextmanager
def cluster(address: str | None = None, *, n_cpus: int | None = None) -> Iterator[Any]:
    """This process's Ray cluster; without one, that at `address`, or a new one of `n_cpus` on this machine.

    What was started or joined here is left at the end. Ray itself looks for an address in ``RAY_ADDRESS``.
    Output meanwhile goes to standard error, since Ray reports dying workers on standard output.
    """
    ray = import_ray()
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    with redirect_stdout(sys.stderr):
        if ray.is_initialized():
            yield ray
            return
        _join_or_start(ray, address, n_cpus)
        try:
            yield ray
        finally:
            ray.shutdown()


def _join_or_start(ray: Any, address: str | None, n_cpus: int | None) -> None:
    fresh = address is None and "RAY_ADDRESS" not in os.environ
    # Ray logs much that is irrelevant here, and more of our errors than the message.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        if not fresh:
            _check_answers(ray, address or os.environ["RAY_ADDRESS"])
        ray.init(
            address,
            num_cpus=n_cpus if fresh else None,
            include_dashboard=False if fresh else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # Ray's error for a control service that dies meanwhile
        reason = " ".join(str(error).split())
        if fresh:
            raise InputError(f"Ray cannot be started on this machine ({reason}), {AGAIN}") from error
        raise InputError(
            f"no Ray cluster at {address or os.environ['RAY_ADDRESS']}: {reason}; "
            "start one with `ray start --head`, or leave the address out to use this machine"
        ) from error


def _check_answers(ray: Any, address: str) -> None:
    """Check that Ray answers there within a minute: on its own it would retry for a quarter of an hour."""
    is_client = address.startswith("ray://")
    resolve = str if is_client else ray._private.services.canonicalize_bootstrap_address
    place = resolve(address.removeprefix("ray://"))
    if place is None:  # a new cluster on this machine
        return
    host, _, port = place.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    if not is_client:  # a client gives up after 30 seconds on its own
        ray._raylet.GcsClient(address=place)


@contextmanager
def own_errors(ray: Any) -> Iterator[None]:
    """Re-raise workers' errors here, and report killed Ray processes as such."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise InputError(*getattr(error.cause, "__notes__", error.cause.args)) from None
        raise
    except ray.exceptions.RayError as error:
        raise InputError(f"Ray lost a worker or a service ({type(error).__name__}), {AGAIN}") from error


def predict_interval(
    dataset: Any,
    model: TableModel | str | os.PathLike[str],
    confidence_level: Levels | None = None,
    *,
    batch_rows: int | None = None,
    side: str | None = None,
    above: Sequence[float] = (),
) -> Any:
    """A Ray dataset with the model's predictions and intervals as added columns, computed when consumed.

    Rows keep their order. The numbers equal, bit for bit, those of :meth:`TableModel.predict` on batches of
    `batch_rows` rows, whatever the dataset's blocks. On a cluster with GPUs each actor uses one.

    Parameters
    ----------
    dataset : a ``ray.data.Dataset`` with the columns of the table that the model was fitted on.
    model : the folder that ``lvd fit`` wrote, on this machine, or the model loaded from it.
    confidence_level : one level or several; defaults to those of the fit.
    batch_rows : rows predicted at a time; defaults to the local engine's batch size.
    side, above : as in :meth:`TableModel.predict`.

    Examples
    --------
    >>> import lvd, ray  # doctest: +SKIP
    >>> homes = ray.data.read_parquet("homes/")  # doctest: +SKIP
    >>> lvd.tables.distributed.predict_interval(homes, "homes-model").write_parquet("priced/")  # doctest: +SKIP
    """
    ray = import_ray()
    if not isinstance(dataset, ray.data.Dataset):
        raise InputError(f"dataset must be a ray.data.Dataset, got {type(dataset).__name__}")
    if not isinstance(model, TableModel):
        model = TableModel.load(model)
    return _predicted(ray, dataset, _Work.of(model, confidence_level, batch_rows, side, above))


class _Work(NamedTuple):
    """What to compute: a model's files, the requested outputs, and the batch size."""

    files: dict[str, bytes]
    asked: dict[str, Any]
    batch_rows: int
    n_threads: int

    @classmethod
    def of(
        cls,
        model: TableModel,
        confidence_level: Levels | None,
        batch_rows: int | None,
        side: str | None,
        above: Sequence[float],
    ) -> _Work:
        if batch_rows is None:
            batch_rows = model.encoder.batch_rows
        check_positive(batch_rows, "batch_rows", integer=True)
        levels = model.resolve_levels(confidence_level).tolist()
        asked = {"confidence_level": levels, "side": side, "above": tuple(above)}
        return cls(_pack(model), asked, batch_rows, torch.get_num_threads())


def _predicted(ray: Any, dataset: Any, work: _Work) -> Any:
    predicted = dataset.repartition(target_num_rows_per_block=work.batch_rows, strict=True).map_batches(
        Predictor,
        fn_constructor_args=(ray.put(work.files), work.asked, work.n_threads),
        batch_size=work.batch_rows,  # one block each; on a GPU Ray needs it explicitly
        batch_format="pyarrow",
        **_share_of_cluster(ray, work.n_threads),
    )
    predicted.context.execution_options.preserve_order = True
    return predicted


def predict_to(
    out: str | os.PathLike[str],
    paths: Sequence[Path],
    model: TableModel,
    confidence_level: Levels | None = None,
    *,
    address: str | None = None,
    batch_rows: int | None = None,
    side: str | None = None,
    above: Sequence[float] = (),
    on_rows: Callable[[int], None] | None = None,
) -> PredictReport:
    """Do what :meth:`TableModel.predict_to` does with these files as one table, on a cluster that can read them.

    This process writes the file `out`, which appears when complete. A cluster that this process has not joined
    is joined from a subprocess, which Ray kills if the cluster dies.
    """
    check_same_columns(paths)
    n_given = len(read_schema(paths[0]))
    work = _Work.of(model, confidence_level, batch_rows, side, above)
    job = [path.absolute() for path in paths], work, address
    tables = (_predict_files if import_ray().is_initialized() else _predict_apart)(*job)
    with closing(tables):  # leave the cluster even if writing fails
        predicted = ((table.select(table.column_names[:n_given]), _added(table, n_given)) for table in tables)
        return write_predictions(out, predicted, unseen=model.unseen, on_rows=on_rows)


def _added(table: pa.Table, n_given: int) -> dict[str, NDArray]:
    return {name: table[name].to_numpy() for name in table.column_names[n_given:]}


def _predict_files(
    paths: Sequence[Path], work: _Work, address: str | None
) -> Generator[pa.Table, None, None]:
    """Yield the files with the added columns, block by block; the cluster starts with the first block."""
    with cluster(address) as ray, own_errors(ray):
        predicted = _predicted(ray, _read_files(ray, paths), work)
        predicted.context.enable_progress_bars = False
        predicted.context.raise_original_map_exception = True
        yield from predicted.iter_batches(batch_size=None, batch_format="pyarrow")


def _predict_apart(*job: Any) -> Generator[pa.Table, None, None]:
    """As `_predict_files`, in a subprocess."""
    with _apart() as ask:
        yield from ask(_predict_files, *job)


@contextmanager
def _apart() -> Iterator[Callable[..., Generator[Any, None, None]]]:
    """A subprocess that runs generators for us: Ray kills the process it runs in when its services die."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # Ray logs at length what we report in one sentence
        start_new_session=True,
    ) as process:
        asked, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)

        def ask(*question: Any) -> Generator[Any, None, None]:
            try:
                pickle.dump(question, asked)
                asked.flush()
                while (answer := pickle.load(answers)) is not None:
                    if isinstance(answer, Exception):
                        raise answer
                    yield answer
            except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
                code = process.wait()
                raise InputError(
                    f"Ray ended while it was at work (status {code}): its services were killed, {AGAIN}"
                ) from error

        try:
            yield ask
        finally:
            process.terminate()
            try:
                process.communicate(timeout=ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def answer_asked() -> None:
    """Run the functions that `_apart` sends: for each, send what it yields, then None, or an exception.

    The process ends with its parent.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what Ray prints is not an answer
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    questions: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_read_questions, args=(questions,), daemon=True).start()

    def send(answer: Any) -> None:
        pickle.dump(answer, answers)
        answers.flush()

    while True:
        function, *arguments = questions.get()
        try:
            for answer in function(*arguments):
                send(answer)
            send(None)
        except BrokenPipeError:
            return
        except InputError as error:
            send(error)
        except Exception:
            send(RuntimeError(traceback.format_exc()))


def _read_questions(questions: SimpleQueue[Any]) -> None:
    """Queue the questions until the input ends, which means that the parent has ended."""
    try:
        while True:
            questions.put(pickle.load(sys.stdin.buffer))
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def on_ray(address: str | None = None) -> Iterator[None]:
    """Train the models of every `fit` in this block as tasks of a Ray cluster, with the same result to the bit.

    The models that predict held-out rows, and those that learn how large errors are and their shape, are trained in
    parallel. The bits are the same on processors of the same kind. If a worker dies, its task is repeated, up to
    three times.

    Parameters
    ----------
    address : the cluster, as ``"HOST:PORT"``, or ``"auto"`` for one that runs on this machine. By default the one
        that this process has joined or that ``RAY_ADDRESS`` names, else a new one on this machine, which ends with
        the block.

    Examples
    --------
    >>> from lvd import distributed
    >>> with distributed.on_ray():  # doctest: +SKIP
    ...     reg.fit(X, y)
    """
    if import_ray().is_initialized():
        with training_by(partial(_train_jobs, _finished_tasks)):
            yield
        return
    announce("connecting to Ray")
    with _apart() as ask:
        for _ in ask(_join_for_good, address):
            pass
        with training_by(partial(_train_jobs, partial(ask, _finished_tasks))):
            yield


def _join_for_good(address: str | None) -> Iterator[None]:
    """Join or start a cluster until this process ends."""
    joined = ExitStack()
    joined.enter_context(cluster(address))
    atexit.register(joined.close)
    yield from ()


def _train_jobs(finished_tasks: Callable[..., Iterator[tuple[int, bytes]]], jobs: Jobs) -> list[Any]:
    """Run the jobs as tasks and return their answers, or raise the error of the first item that failed."""
    dumps = import_ray().cloudpickle.dumps
    # As bytes, because Ray would pass arrays that cannot be written to.
    function, items = dumps(jobs.function), [dumps(item) for item in jobs.items]
    answers: list[Any] = [None] * len(items)
    upcoming = iter(jobs.items)
    jobs.begins(next(upcoming))
    for number, answer in finished_tasks(function, items, Threads.here()):
        answers[number] = pickle.loads(answer)
        jobs.ended()
        for item in islice(upcoming, 1):
            jobs.begins(item)
    seen: dict[Any, int] = {}
    for error, _, noted in answers:
        for warning in noted:
            warnings.warn_explicit(**warning, registry=seen)
        if error is not None:
            raise error
    return [answer for _, answer, _ in answers]


def _finished_tasks(function: bytes, items: Sequence[bytes], threads: Threads) -> Iterator[tuple[int, bytes]]:
    """Yield the number and answer of each item as it finishes."""
    ray = import_ray()
    with own_errors(ray):
        share = _share_of_task(ray, len(items))
        task = ray.remote(max_retries=MOST_RETRIES, **share)(run_task)
        shared, n_threads = ray.put(function), int(share["num_cpus"])
        waiting = {task.remote(shared, item, threads, n_threads): number for number, item in enumerate(items)}
        while waiting:
            (done,), _ = ray.wait(list(waiting))
            yield waiting.pop(done), ray.get(done)


def _share_of_task(ray: Any, n_tasks: int) -> dict[str, float]:
    """The resources that a task reserves, so that all tasks can run at the same time."""
    cores = _cores(ray) or [1]
    share = {"num_cpus": float(max(1, min(*cores, sum(cores) // n_tasks)))}
    if n_gpus := ray.cluster_resources().get("GPU", 0):
        share["num_gpus"] = max(0.001, math.floor(1000 * min(1.0, n_gpus / n_tasks)) / 1000)
    return share


def run_task(function: bytes, item: bytes, threads: Threads, n_processors: int) -> bytes:
    """Run one item in a worker: its error or None, its answer, and its warnings."""
    threads.take(n_processors)
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            found: tuple[Exception | None, Any] = None, pickle.loads(function)(pickle.loads(item))
        except Exception as error:
            found = error, None
    issued = [
        {"message": one.message, "category": one.category, "filename": one.filename, "lineno": one.lineno}
        for one in noted
    ]
    return cast("bytes", import_ray().cloudpickle.dumps((*found, issued)))


class Predictor:
    """The work of an actor: it loads the model once, and adds columns to one batch after the other."""

    def __init__(self, files: Any, asked: dict[str, Any], n_threads: int) -> None:
        from threadpoolctl import threadpool_limits

        self.asked = asked
        with tempfile.TemporaryDirectory() as folder:
            for name, content in import_ray().get(files).items():
                Path(folder, name).write_bytes(content)
            self.model = TableModel.load(folder)
        # As many threads as the local engine uses: otherwise a matrix product may round differently.
        threadpool_limits(n_threads)
        torch.set_num_threads(n_threads)

    def __call__(self, table: pa.Table) -> pa.Table:
        """The rows with their predictions and intervals."""
        numbers = None
        if ROW in table.column_names:
            numbers, table = table[ROW].to_numpy(), table.drop_columns([ROW])
        with noting_refusals():
            return with_columns(table, self.model.predict(table, numbers=numbers, **self.asked))


def _read_files(ray: Any, paths: Sequence[Path]) -> Any:
    """The files as one dataset, in order, with numbered rows; each file is read by one task."""
    count = ray.remote(num_cpus=CPUS_PER_THREAD)(count_text_rows)
    counts = [count_rows(path) or count.remote(path.absolute()) for path in paths]
    n_rows = [one if isinstance(one, int) else ray.get(one) for one in counts]
    first_rows = 1 + np.cumsum([0, *n_rows[:-1]])
    files = [
        {"path": str(path.absolute()), "first_row": int(first_row)}
        for path, first_row in zip(paths, first_rows, strict=True)
    ]
    return ray.data.from_items(files, override_num_blocks=len(files)).map_batches(
        read_numbered, batch_size=None, batch_format="pyarrow", num_cpus=CPUS_PER_THREAD
    )


def _pack(model: TableModel) -> dict[str, bytes]:
    """The files of the saved model, which the actors load, each on its own device."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model"))
        return {path.name: path.read_bytes() for path in Path(folder, "model").iterdir()}


def _share_of_cluster(ray: Any, n_threads: int) -> dict[str, Any]:
    """The most actors, and what each reserves: one core always stays free for reading data."""
    cores = _cores(ray)
    smallest = min(cores, default=1)
    per_node = max(1, smallest // n_threads)
    share: dict[str, Any] = {"num_cpus": min(CPUS_PER_THREAD * n_threads, (smallest - 1) / per_node)}
    n_actors = max(1, sum(cores) // n_threads)
    if n_gpus := int(ray.cluster_resources().get("GPU", 0)):
        share["num_gpus"], n_actors = 1, n_gpus
    return share | {"compute": ray.data.ActorPoolStrategy(min_size=1, max_size=n_actors)}


def _cores(ray: Any) -> list[int]:
    """The number of processors of each machine that has any."""
    cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    return [count for count in cores if count]


def count_text_rows(path: Path) -> int:
    """The number of rows of a CSV file, counted by reading it."""
    return sum(batch.num_rows for batch in iter_batches(path))


def read_numbered(files: pa.Table) -> Iterator[pa.Table]:
    """The rows of the files in column ``path``, numbered from ``first_row`` in a column `ROW`."""
    for file in files.to_pylist():
        with noting_refusals():
            for numbers, batch in numbered(iter_batches(file["path"])):
                yield with_columns(batch, {ROW: file["first_row"] - 1 + numbers})


@contextmanager
def noting_refusals() -> Iterator[None]:
    """Also attach an `InputError`'s message as a note, which survives when others extend the message."""
    try:
        yield
    except InputError as error:
        error.add_note(str(error))
        raise
