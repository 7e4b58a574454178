"""What a model reads from a table: all columns as features, or the raw cells of one column of molecules.

Columns that a person would leave out are found: constants, identifiers, and leaks of the target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lvd._progress import announce
from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError, Parameter, check_texts
from lvd.models.candidates import BlockFolds, folds_of_cases, number_of_folds
from lvd.models.coding import looks_unique
from lvd.molecules import ChempropEstimator, TrainedMPNN
from lvd.molecules.domain import of_several_parts, scaffolds
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.smiles import note_long, valid_smiles
from lvd.tables.column_coding import (
    MAX_CATEGORIES,
    Column,
    example_of_formatted,
    learn_from,
    with_mean_targets,
)
from lvd.tables.column_values import (
    RowNumbers,
    are_numbers,
    check_columns,
    count,
    for_each_column,
    group_labels,
    holds_levels,
    is_text,
    list_rows,
    list_texts,
    to_numbers,
    to_texts,
)
from lvd.tables.dates import DateOrder, are_dates, to_moments
from lvd.tables.frame_encoder import FrameEncoder
from lvd.tables.reading import Batches, numbered
from lvd.tables.splits import (
    AT_RANDOM,
    KeptRows,
    Parts,
    RowSplit,
    random_parts,
    split_group_indices,
    split_time_indices,
    usual_sizes,
)
from lvd.tables.table_encoder import (
    DAMAGED,
    Encoder,
    TableEncoder,
    check_some_left,
    check_targets_vary,
    labelled_rows,
    name_targets,
    read_targets,
)


@dataclass(frozen=True)
class CellEncoder(Encoder):
    """What `fit` learned about a table of molecules: its targets, and the column of SMILES, its only input.

    With `skip_invalid`, rows whose SMILES RDKit rejects are unusable; without it they are an error.
    """

    repeated: ClassVar[str] = "hold a molecule of the training rows"
    case: ClassVar[str] = "molecule"
    kept_in: ClassVar[str] = "molecules"
    added: ClassVar[tuple[str, ...]] = ("nearest", "tanimoto")
    columns: ClassVar[tuple[Column, ...]] = ()
    column_places: ClassVar[tuple[tuple[str, list[int]], ...]] = ()
    feature_names: ClassVar[tuple[str, ...]] = ()
    every_target: ClassVar[bool] = False
    batch_rows: ClassVar[int] = 8192  # graphs take longer than numbers, so progress is shown

    targets: tuple[str, ...]
    smiles: str
    skip_invalid: bool = False

    @classmethod
    def fit(
        cls, table: pa.Table, *, target: str | Sequence[str], column: str, skip_invalid: bool = False
    ) -> CellEncoder:
        """Check the names and the targets."""
        targets = name_targets(target)
        check_columns(table, [*targets, column])
        if column in targets:
            raise InputError(
                f"column {column!r} holds the molecules and cannot be a target; name another one"
            )
        check_targets_vary(table, targets)
        refuse_classes(read_targets(table, targets).reshape(table.num_rows, -1), targets)
        return cls(targets, column, skip_invalid)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that the model reads."""
        return (self.smiles,)

    def usable(self, table: pa.Table, *, numbers: RowNumbers = None) -> Bool[NDArray, "n"]:
        """Which rows hold a molecule that RDKit accepts; the others are an error unless they may be skipped."""
        strings = self.transform(table)
        valid = valid_smiles(strings)
        if not self.skip_invalid and not valid.all():
            raise InputError(
                f"column {self.smiles!r}: RDKit cannot read {count(~valid, 'molecule')} "
                f"({list_rows(~valid, numbers)}): {list_texts(list(dict.fromkeys(strings[~valid])))}"
                f"{note_long(strings[~valid])}; correct or remove these rows, or leave them out with ",
                Parameter("skip_invalid", True),
            )
        return valid

    def transform(self, table: pa.Table, *, numbers: RowNumbers = None) -> NDArray:
        """The SMILES of the rows as written in the table, (n,); missing ones are empty."""
        check_columns(table, [self.smiles])
        (texts,) = for_each_column([self.smiles], lambda name: to_texts(table[name]))
        return np.array(texts.to_pylist(), dtype=object)

    def to_dict(self) -> dict[str, Any]:
        """The complete encoder, in JSON types."""
        return asdict(self) | {"targets": list(self.targets)}

    @classmethod
    def from_dict(cls, content: Any) -> CellEncoder:
        """Restore the output of `to_dict`; anything else is an error."""
        chemprop_adapter()  # if chemprop is missing, report that instead of a damaged folder
        try:
            (smiles,), targets = check_texts([content["smiles"]]), check_texts(content["targets"])
            skip_invalid = content["skip_invalid"]
            if not targets or len({*targets, smiles}) <= len(targets) or not isinstance(skip_invalid, bool):
                raise ValueError("a name is missing or repeated")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{DAMAGED} ({error!r}); save the model again") from None
        return cls(targets, smiles, skip_invalid)


RowEncoder: TypeAlias = TableEncoder | CellEncoder | FrameEncoder


class LabelledPart(NamedTuple):
    """The usable rows of a batch that have targets, their numbers, and how many others are left out."""

    rows: pa.Table
    numbers: Int[NDArray, "n"]
    n_skipped: int
    n_unlabelled: int


def labelled_parts(encoder: RowEncoder, batches: Batches, *, every: bool = True) -> Iterator[LabelledPart]:
    """The rows of each batch that have a value for every target, or for any."""
    for numbers, batch in numbered(batches):
        usable = encoder.usable(batch, numbers=numbers)
        labelled = labelled_rows(batch, encoder.targets, every=every, numbers=numbers)
        chosen = np.flatnonzero(usable & labelled)
        counts = int((~usable).sum()), int((usable & ~labelled).sum())
        yield LabelledPart(batch.take(chosen), numbers[chosen], *counts)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Checked inputs and targets of the usable rows, and the training, calibration and test parts.

    `rows` are the numbers of the usable rows in the table, counting from 1. `n_duplicates` counts rows that
    repeat the case of an earlier row, `n_unlabelled` rows left out for lack of a target, and `mixtures` holds
    the numbers of rows with a salt or mixture. `useless` says why columns were left out.
    """

    encoder: RowEncoder
    read: Callable[[Int[NDArray, "k"]], Any]
    """The inputs of the usable rows at these places, made when they are asked for."""
    y: Float[NDArray, "n *t"]
    parts: Parts
    rows: Int[NDArray, "n"]
    kept: KeptRows | None = None
    n_duplicates: int = 0
    n_unlabelled: int = 0
    n_spared: int = 0
    """Calibration rows that are left out, because no more than so many are to calibrate."""
    mixtures: tuple[int, ...] = ()
    useless: dict[str, str] = field(default_factory=dict)
    together: NDArray | None = None
    """Labels of the rows that a split by groups or scaffolds keeps together."""
    cells: NDArray | None = None
    """The SMILES texts."""
    own_means: dict[str, NDArray] = field(default_factory=dict)
    """For columns with pooled levels, the training rows' out-of-fold mean targets."""
    crossed: bool = False
    """Whether the training rows also calibrate, by their out-of-fold errors."""

    @property
    def training_inputs(self) -> Any:
        """The inputs to train on, with out-of-fold mean targets of levels."""
        X = self.read(self.parts[0])
        if not self.own_means:
            return X
        for name, places in self.encoder.column_places:
            if name in self.own_means:
                means = self.own_means[name]
                X[:, places[-means.shape[1] :]] = means
        return X

    def calibrated_by(
        self, some: Int[NDArray, "k"] | None, labels: NDArray | None
    ) -> tuple[Prepared, Int[NDArray, "_"], NDArray | None]:
        """Keep `some` of the calibration rows, None for all; returns them with indices and labels.

        The other calibration rows are not used, not even for testing.
        """
        train, calib, test = self.parts
        if some is None:
            return self, calib, labels
        left = calib[some]
        cells = None if self.cells is None else tuple(self.cells[left])
        kept = KeptRows(self.rows[left], self.rows[test], cells)
        drawn = replace(self, parts=(train, left, test), kept=kept, n_spared=len(calib) - len(left))
        return drawn, left, None if labels is None else labels[some]

    def joined(self) -> Prepared:
        """The rows with calibration and training parts merged, all used for both."""
        train, calib, test = self.parts
        both = np.concatenate([train, calib])
        cells = None if self.cells is None else tuple(self.cells[both])
        return replace(
            self,
            crossed=True,
            parts=(both, both, test),
            kept=KeptRows(self.rows[both], self.rows[test], cells),
        )

    def folds(self, split: RowSplit, n_folds: Any, seed: int) -> Any:
        """Folds of the joined rows: blocks in time, whole groups or scaffolds, or a number of folds for a
        random split."""
        from sklearn.model_selection import PredefinedSplit

        both = self.parts[0]
        if split.kind == "time":
            number = number_of_folds(len(both), len(both)) if n_folds == "auto" else n_folds
            return BlockFolds(number, split.n_gap)
        if self.together is None:
            return n_folds
        fold_of = np.empty(len(both), np.int64)
        for number, (_, outside) in enumerate(folds_of_cases(self.together[both], n_folds, seed)):
            fold_of[outside] = number
        return PredefinedSplit(fold_of)


Joins: TypeAlias = Callable[[int, int], bool]
"""Whether all rows outside the test part train and calibrate, from their number and the most levels of a column."""


def never(n_rows: int, n_levels: int) -> bool:
    """Keep training and calibration rows apart, however many there are."""
    return False


def prepare_columns(
    table: pa.Table,
    *,
    target: str | Sequence[str],
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    impute: str | None = None,
    split: RowSplit = AT_RANDOM,
    seed: int,
    fills: bool = True,
    joins: Joins = never,
    date_format: DateOrder | None = None,
) -> Prepared:
    """All columns but the targets and dropped ones as features, with a split, by default the paper's.

    Rows without a target, constant columns and identifiers are left out, unless they are to be kept. Column
    kinds are decided from all rows; levels, medians and first moments come from the training rows only. Missing
    numbers are NaN unless the encoder `fills` them in.

    If `joins` says so, the training and calibration parts are merged and used for both.

    The column that defines the split is an input only as far as it can describe rows outside the training part:
    the recurring parts of a time, nothing of groups.
    """
    if split.kind == "scaffold":
        raise InputError(
            Parameter("split"), " must be random, time:COLUMN or group:COLUMN where no column holds molecules"
        )
    announce("reading the columns")
    targets = name_targets(target)
    check_columns(table, [*targets, *drop, *keep, *([split.column] if split.column else [])])
    names = [name for name in table.column_names if name not in {*targets, *drop}]
    useless = find_useless(table, [name for name in names if name not in keep])
    check_some_left(names, useless)
    outside = {*drop, *useless} | (_left_out_by(split, table) - {*targets})
    encoder = TableEncoder.fit(
        table, target=target, drop=sorted(outside), impute=impute, date_format=date_format
    )
    labelled = labelled_rows(table, targets)
    rows = np.flatnonzero(labelled)
    parts = split_table(split, table, rows, seed, date_format)
    learn = partial(learn_from, encoder.columns, forget_dates=split.column if split.kind == "time" else None)
    columns, learning = _learn_columns(learn, table, rows, parts, joins)
    crossed = len(learning) > len(parts[0])
    y = encoder.target(table.take(rows))
    own_means: dict[str, NDArray] = {}
    if not crossed:
        known = y.reshape(len(y), -1)[parts[0]]
        columns, own_means = with_mean_targets(columns, table.take(rows[learning]), known, seed)
    encoder = replace(encoder, columns=columns, fills=fills)
    if not encoder.columns:
        raise InputError(
            *("no column is left to predict from besides that of ", Parameter("split", str(split))),
            "; keep another one",
        )
    kept = None
    if split.column is not None or not labelled.all():
        kept = KeptRows(rows[parts[1]] + 1, rows[parts[2]] + 1)
    prepared = Prepared(
        encoder=encoder,
        read=partial(_read_rows, encoder, table, rows),
        y=y,
        parts=parts,
        rows=rows + 1,
        kept=kept,
        n_unlabelled=int((~labelled).sum()),
        useless=useless,
        own_means=own_means,
        together=group_labels(table[split.column].take(pa.array(rows))).astype(str)
        if split.kind == "group" and split.column is not None
        else None,
    )
    return prepared.joined() if crossed else prepared


def split_table(
    split: RowSplit, table: pa.Table, rows: Int[NDArray, "n"], seed: int, date_format: DateOrder | None = None
) -> Parts:
    """The indices in `rows` of the training, calibration and test parts."""
    if split.column is None:
        return random_parts(len(rows), seed)
    sizes, some = usual_sizes(len(rows)), table[split.column].take(pa.array(rows))
    if split.kind == "group":
        return split_group_indices(group_labels(some).astype(str), seed, sizes=sizes)

    def read(_: str) -> NDArray:
        return to_moments(some, order=date_format) if are_dates(some) else to_numbers(some)

    (moments,) = for_each_column([split.column], read, noun="split by column")
    if (missing := np.isnan(moments)).any():
        raise InputError(
            f"split by column {split.column!r}: {count(missing, 'missing value')}; fill them in, or "
            "remove these rows"
        )
    train, calib, test = split_time_indices(moments, seed, sizes=sizes)
    early = [
        part[moments[part] <= moments[later].min() - split.gap] if split.gap else part
        for part, later in ((train, calib), (calib, test))
    ]
    if not all(map(len, early)):
        raise InputError(
            f"no row is left between the parts of split by column {split.column!r}, which a horizon must lie "
            "between; give more rows, or smaller horizons"
        )
    return early[0], early[1], test


def _left_out_by(split: RowSplit, table: pa.Table) -> set[str]:
    """The column of the split, if all its values outside the training part are new."""
    if split.column is None:
        return set()
    return set() if split.kind == "time" and are_dates(table[split.column]) else {split.column}


def _learn_columns(
    learn: Callable[[pa.Table], tuple[Column, ...]],
    table: pa.Table,
    rows: Int[NDArray, "n"],
    parts: Parts,
    joins: Joins,
) -> tuple[tuple[Column, ...], Int[NDArray, "k"]]:
    """The columns, and the rows that they are learned from: the training rows, or all outside the test part."""
    both = np.concatenate(parts[:2])
    if joins(len(both), 0):
        columns = learn(table.take(rows[both]))
        if joins(len(both), max((len(one.categories) + len(one.rare) for one in columns), default=0)):
            return columns, both
    return learn(table.take(rows[parts[0]])), parts[0]


def _read_rows(
    encoder: TableEncoder, table: pa.Table, rows: Int[NDArray, "n"], places: Int[NDArray, "k"]
) -> Float[NDArray, "k p"]:
    """The features of some of the rows of a table."""
    return encoder.transform(table, numbers=rows[places] + 1, rows=rows[places])


def prepare_cells(
    table: pa.Table,
    estimator: Any,
    *,
    target: str | Sequence[str],
    column: str,
    skip_invalid: bool,
    split: RowSplit = AT_RANDOM,
    seed: int,
    joins: Joins = never,
) -> Prepared:
    """One column as molecules, read by the estimator; all rows of a molecule are in the same part.

    Two rows are the same molecule if their canonical SMILES are equal. With a ``"scaffold"`` split, all
    molecules of a scaffold are in the same part. If `joins` says so, the training and calibration rows
    are one part.
    """
    if not isinstance(estimator, ChempropEstimator | TrainedMPNN):
        raise InputError(
            Parameter("column", named=True),
            " is for molecules: the regressor's estimator must be a ChempropEstimator or a TrainedMPNN, "
            f"got {type(estimator).__name__}",
        )
    chemprop_adapter()  # fail now, not after the work
    encoder = CellEncoder.fit(table, target=target, column=column, skip_invalid=skip_invalid)
    if split.column is not None:
        raise InputError(Parameter("split"), " must be random or scaffold where a column holds molecules")
    usable, labelled = encoder.usable(table), labelled_rows(table, encoder.targets, every=False)
    rows = np.flatnonzero(usable & labelled)
    if not usable.any():
        raise InputError(f"column {column!r}: RDKit cannot read any row; is it a column of SMILES?")
    strings, y = encoder.transform(table)[rows], encoder.target(table.take(rows))
    molecules = estimator.check(strings)
    n_cases = len(set(molecules))
    if n_cases < 3:
        raise InputError(
            f"column {column!r} holds {n_cases} different molecule(s); training, calibration and test need at "
            "least one each"
        )
    together = scaffolds(molecules.canonical) if split.kind == "scaffold" else None
    noun = "groups" if together is None else "scaffolds"
    parts = split_group_indices(molecules.canonical if together is None else together, seed, noun=noun)
    check_every_part(y.reshape(len(y), -1), parts, encoder.targets)
    train, calib, test = parts
    prepared = Prepared(
        encoder=replace(encoder, skip_invalid=False),
        read=molecules.__getitem__,
        y=y,
        parts=parts,
        rows=rows + 1,
        kept=KeptRows(rows[calib] + 1, rows[test] + 1, tuple(strings[calib])),
        n_duplicates=len(molecules) - n_cases,
        n_unlabelled=int((usable & ~labelled).sum()),
        together=together,
        cells=strings,
        mixtures=tuple((rows[of_several_parts(molecules.canonical)] + 1).tolist()),
    )
    return prepared.joined() if joins(len(train) + len(calib), 0) else prepared


def refuse_classes(y: Float[NDArray, "n t"], targets: Sequence[str]) -> None:
    """Raise for a target with two values, such as 0 and 1: it is a class, for which there are no intervals."""
    for name, column in zip(targets, y.T, strict=True):
        values = np.unique(column[~np.isnan(column)])
        if len(values) == 2 and (values == np.round(values)).all():
            raise InputError(
                f"target {name!r} has only the values {values[0]:g} and {values[1]:g}: that is a class, and lvd "
                "gives intervals of numbers; leave it out, and use chemprop's classification for it"
            )


def check_every_part(y: Float[NDArray, "n t"], parts: Parts, targets: Sequence[str]) -> None:
    """Raise unless each target has rows to train, calibrate and test on."""
    for name, column in zip(targets, y.T, strict=True):
        counts = [int((~np.isnan(column[part])).sum()) for part in parts]
        if min(counts) < 2:
            raise InputError(
                f"target {name!r} is known for {sum(counts)} molecules, of which {counts[0]} train, {counts[1]} "
                f"calibrate and {counts[2]} test; each part needs at least 2: leave the target out, or give more"
            )


IDENTIFIER = re.compile(
    r"(^|[_\W])(?i:id|ids|key|uuid|guid|index|idx|nr|row|record|serial)$|[a-z](ID|Id|Key)$"
)
"""Common names of columns that number the rows."""
LEAK = 0.99
"""A column that alone explains this share of the target's variance is reported."""
LEAK_ROWS, LEAK_LEAVES, LEAK_FOLDS = 2000, 64, 3


def find_useless(table: pa.Table, names: Sequence[str]) -> dict[str, str]:
    """The columns that are constant or number the rows, each with the reason.

    Integers that count the rows are kept if no other column would remain.
    """
    constant = {name: "constant" for name in names if _is_constant(table[name])}
    others = [name for name in names if name not in constant]
    identifiers = {name: "identifier" for name in others if _is_identifier(name, table[name])}
    if identifiers and len(identifiers) == len(others):
        identifiers = {name: what for name, what in identifiers.items() if not _are_integers(table[name])}
    return constant | identifiers


def find_leaks(
    columns: Sequence[Column], X: Float[NDArray, "n p"], y: Float[NDArray, "n *t"], seed: int
) -> dict[str, float]:
    """The columns that alone predict a target almost perfectly, with the share of its variance that each explains.

    Measured with a small tree on rows it has not seen, and on a sample of large tables. The target or its ranks
    may decide: if a few values are huge, they are all of its variance, and no tree predicts them unseen.
    """
    from scipy.stats import rankdata
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.tree import DecisionTreeRegressor

    rows = np.random.default_rng(seed).permutation(len(X))[:LEAK_ROWS]
    if len(rows) < 10 * LEAK_FOLDS or len(columns) < 2:
        return {}
    some, targets = X[rows], y[rows].reshape(len(rows), -1)
    wanted = [column for column in np.hstack([targets, rankdata(targets, axis=0)]).T if np.ptp(column) > 0.0]
    ends = np.cumsum([len(column.feature_names) for column in columns])
    found = {}
    for column, end in zip(columns, ends.tolist(), strict=True):
        block = some[:, end - len(column.feature_names) : end]
        tree = DecisionTreeRegressor(max_leaf_nodes=LEAK_LEAVES, random_state=0)
        explained = 0.0
        for one in wanted:
            predicted = cross_val_predict(tree, block, one, cv=KFold(LEAK_FOLDS))
            explained = max(explained, 1.0 - float(((one - predicted) ** 2).mean() / one.var()))
        if explained > LEAK:
            found[column.name] = explained
    return found


def _is_constant(values: pa.ChunkedArray) -> bool:
    """Whether all non-missing values are equal."""
    if holds_levels(values.type):
        texts = pc.unique(to_texts(values)).to_pylist()
        return len({text for text in texts if text}) < 2 and (len(texts) < 2 or is_text(values.type))
    try:
        known = pc.drop_null(pc.unique(values))
    except pa.ArrowNotImplementedError:  # lists, structs, small decimals: learning the column decides
        return False
    if pa.types.is_floating(known.type):
        known = known.filter(pc.invert(pc.is_nan(known)))
    return len(known) < 2


def _is_identifier(name: str, values: pa.ChunkedArray) -> bool:
    if name == "" or name.startswith("__index_level_"):
        return True
    if _are_integers(values):
        return _numbers_the_rows(name, values)
    if not is_text(values.type):
        return False
    texts = to_texts(values)
    named = texts.filter(pc.not_equal(texts, ""))
    known = pc.unique(named)
    if not looks_unique(len(known), len(named)) or are_dates(values):
        return False
    if example_of_formatted(known.to_pylist()[: 2 * MAX_CATEGORIES]) is not None:
        return False  # learning the column says what to do
    return bool(2 * are_numbers(known).sum() < len(known)) or IDENTIFIER.search(name) is not None


def _numbers_the_rows(name: str, values: pa.ChunkedArray) -> bool:
    """Whether almost all integers differ, and they fill their range or are named like an identifier."""
    known = pc.drop_null(pc.unique(values))
    numbers = known.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    n_distinct = int((~np.isnan(numbers)).sum())
    if not looks_unique(n_distinct, len(values) - values.null_count):
        return False
    span = float(np.nanmax(numbers) - np.nanmin(numbers)) + 1.0
    return IDENTIFIER.search(name) is not None or n_distinct > 0.9 * span


def _are_integers(values: pa.ChunkedArray) -> bool:
    if pa.types.is_integer(values.type):
        return True
    if not (pa.types.is_floating(values.type) or pa.types.is_decimal128(values.type)):
        return False
    array = np.asarray(values.cast(pa.float64(), safe=False).to_numpy())
    array = array[np.isfinite(array)]
    return len(array) > 0 and bool((array == np.floor(array)).all())
