"""What is known of each dataset: its columns and their roles, its home, and the checksum of its table."""

from __future__ import annotations

from dataclasses import dataclass

from lvd._validation import InputError
from lvd.reproduction import cells as table
from lvd.reproduction.cells import Cells
from lvd.reproduction.download import (
    OpenML,
    Source,
    WebFile,
    parse_csv,
    parse_whitespace,
    parse_workbook,
)


@dataclass(frozen=True)
class Entry:
    """A dataset that lives in a file.

    Attributes:
        rows: The numbers of rows a copy may have; the first is the usual one.
        columns: Names of the file's columns, in its order.
        targets: The columns to predict.
        home: Where the table is published, in words.
        source: How to fetch it from there.
        checksums: `table_checksum` of the copies known to be good.
        unused: Columns that are neither inputs nor targets.
        one_hot: Inputs coded as one 0/1 column per value.
        leaking: Columns that give the target away; the paper protocol has them among the inputs.
        smiles: The column with the molecules, which is then the only input.
        distinct: Whether molecules that occur in more than one row are dropped.
        checked_rows: Labels, in the first column, of the rows that the checksum covers; None for all rows.
    """

    name: str
    rows: tuple[int, ...]
    columns: tuple[str, ...]
    targets: tuple[str, ...]
    home: str
    source: Source
    license_note: str
    checksums: tuple[str, ...]
    unused: tuple[str, ...] = ()
    one_hot: tuple[str, ...] = ()
    leaking: tuple[str, ...] = ()
    smiles: str | None = None
    distinct: bool = False
    checked_rows: tuple[str, ...] | None = None

    @property
    def files(self) -> tuple[str, str]:
        """The names under which the table is looked for."""
        return f"{self.name}.csv", f"{self.name}.csv.gz"


def check_table(cells: Cells, entry: Entry) -> Cells:
    """The cells, if they are the table that `entry` describes."""
    missing = [column for column in entry.columns if column not in cells]
    if missing:
        raise InputError(f"the {entry.name} table lacks the columns {', '.join(missing)}")
    n = len(cells[entry.columns[0]])
    if n not in entry.rows:
        raise InputError(
            f"the {entry.name} table must have {' or '.join(map(str, entry.rows))} rows, got {n}"
        )
    found = table_checksum(cells, entry)
    if found not in entry.checksums:
        raise InputError(
            f"the {entry.name} table does not hold the expected values (checksum {found[:12]}, "
            f"expected {' or '.join(good[:12] for good in entry.checksums)})"
        )
    return cells


def table_checksum(cells: Cells, entry: Entry) -> str:
    """The checksum of the columns in use, over the rows that `entry` names."""
    numeric = [c for c in entry.columns if c not in entry.unused and c != entry.smiles]
    if entry.checked_rows is None:
        return table.checksum(cells, numeric=numeric, text=[entry.smiles] if entry.smiles else [])
    labels = set(entry.checked_rows)
    rows = [i for i, label in enumerate(cells[entry.columns[0]]) if label in labels]
    # Copies of such a table write its molecules in different ways: the numbers alone count.
    return table.checksum({c: [cells[c][i] for i in rows] for c in numeric}, numeric=numeric)


_UCI = "https://archive.ics.uci.edu"
_MOLECULENET = "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets"
_SEE_PAGE = "terms: see its page; check them before passing the data on"

_QM8_TARGETS = (
    *("E1-CC2", "E2-CC2", "f1-CC2", "f2-CC2"),
    *("E1-PBE0", "E2-PBE0", "f1-PBE0", "f2-PBE0"),
    *(
        "E1-PBE0.1",
        "E2-PBE0.1",
        "f1-PBE0.1",
        "f2-PBE0.1",
    ),  # these occur twice in the file, with the same values
    *("E1-CAM", "E2-CAM", "f1-CAM", "f2-CAM"),
)
_QM9_TARGETS = ("mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u298", "h298", "g298", "cv")

_ALL = (
    Entry(
        name="yacht",
        rows=(308,),
        columns=(
            "longitudinal_position",
            "prismatic_coefficient",
            "length_displacement",
            "beam_draught_ratio",
            "length_beam_ratio",
            "froude_number",
            "residuary_resistance",
        ),
        targets=("residuary_resistance",),
        home=f"UCI, Yacht Hydrodynamics, {_UCI}/dataset/243",
        source=WebFile(
            f"{_UCI}/static/public/243/yacht+hydrodynamics.zip", parse_whitespace, "yacht_hydrodynamics.data"
        ),
        license_note=_SEE_PAGE,
        checksums=("31de6c13d1cb014f440365d9695471ed285a619a5f8702c9f4331e9880949c68",),
    ),
    Entry(
        name="housing",
        rows=(506,),
        columns=(
            *(
                "CRIM",
                "ZN",
                "INDUS",
                "CHAS",
                "NOX",
                "RM",
                "AGE",
                "DIS",
                "RAD",
                "TAX",
                "PTRATIO",
                "B",
                "LSTAT",
            ),
            "MEDV",
        ),
        targets=("MEDV",),
        home="Boston house prices, https://www.openml.org/d/531",
        source=OpenML(531),
        license_note=_SEE_PAGE,
        checksums=("58f7d2283542dfc9b1e54a294e76d96db9376c230b7e1ff40d429eb69ee44310",),
    ),
    Entry(
        name="energy",
        rows=(768,),
        columns=(*(f"X{i}" for i in range(1, 9)), "Y1", "Y2"),
        targets=("Y1",),
        unused=("Y2",),
        home=f"UCI, Energy Efficiency, {_UCI}/dataset/242",
        source=WebFile(
            f"{_UCI}/static/public/242/energy+efficiency.zip", parse_workbook, "ENB2012_data.xlsx"
        ),
        license_note=_SEE_PAGE,
        # The workbook, and the CSV copies, which have 6.37 for 6.366 in row 31.
        checksums=(
            "d305c6d1598605b041d3b534887ddbc8f025bef633735b72448fc71c2201cb08",
            "a9eb23374fa3d863206e0dddbd21675f2c5abc15e4dee97d7bc41adc87eae93a",
        ),
    ),
    Entry(
        name="bike",
        rows=(17379,),
        columns=(
            *("instant", "dteday", "season", "yr", "mnth", "hr", "holiday", "weekday", "workingday"),
            *("weathersit", "temp", "atemp", "hum", "windspeed", "casual", "registered", "cnt"),
        ),
        targets=("cnt",),
        unused=("instant", "dteday", "yr", "mnth"),
        one_hot=("season", "hr", "weekday", "weathersit"),
        leaking=("casual", "registered", "cnt"),
        home=f"UCI, Bike Sharing, {_UCI}/dataset/275",
        source=WebFile(f"{_UCI}/static/public/275/bike+sharing+dataset.zip", parse_csv, "hour.csv"),
        license_note=_SEE_PAGE,
        checksums=("da0e94d5d2eca041a2174e1f8f4a5cc81e103d9693b3e92bda5572178881076f",),
    ),
    Entry(
        name="kin8nm",
        rows=(8192,),
        columns=(*(f"theta{i}" for i in range(1, 9)), "y"),
        targets=("y",),
        home="kin8nm, https://www.openml.org/d/189",
        source=OpenML(189),
        license_note=_SEE_PAGE,
        checksums=("bd417860ba4e0e546f6f2d18802c73b1091da734da981a39cd3eee9e75f54ecb",),
    ),
    Entry(
        name="concrete",
        rows=(1030,),
        columns=(
            "cement",
            "blast_furnace_slag",
            "fly_ash",
            "water",
            "superplasticizer",
            "coarse_aggregate",
            "fine_aggregate",
            "age",
            "strength",
        ),
        targets=("strength",),
        home=f"UCI, Concrete Compressive Strength, {_UCI}/dataset/165",
        source=WebFile(
            f"{_UCI}/static/public/165/concrete+compressive+strength.zip", parse_workbook, "Concrete_Data.xls"
        ),
        license_note=_SEE_PAGE,
        # The workbook only: copies rounded to one or two decimals would not give the paper's digits.
        checksums=("3b101287386cf5c782a6c44a16062a964eac6db0199e3df89b599a924da47c82",),
    ),
    Entry(
        name="qm8",
        rows=(21786,),
        columns=("smiles", *_QM8_TARGETS),
        targets=_QM8_TARGETS,
        smiles="smiles",
        home="MoleculeNet, QM8, https://moleculenet.org",
        source=WebFile(f"{_MOLECULENET}/qm8.csv", parse_csv),
        license_note=_SEE_PAGE,
        checksums=("d0ac1df8022087d93bc397c953a34b13394b73ecb4bd5541cbd72661a7e21f64",),
    ),
    Entry(
        name="qm9",
        # Without and with the 3,054 molecules of the list of uncharacterised ones.
        rows=(130831, 133885),
        columns=("mol_id", "smiles", "A", "B", "C", *_QM9_TARGETS),
        targets=_QM9_TARGETS,
        unused=("mol_id", "A", "B", "C"),
        smiles="smiles",
        distinct=True,
        home="MoleculeNet, QM9, https://moleculenet.org",
        source=WebFile(f"{_MOLECULENET}/qm9.csv", parse_csv),
        license_note="original deposit described as CC0, not checked there; check before passing the data on",
        checksums=("c9dc0c313e3df1de2b833603995d01d275750a07d1b08e799dc2fee10ee63099",),
        # The longest run of molecules that every copy has.
        checked_rows=tuple(f"gdb_{i}" for i in range(33178, 36995)),
    ),
)

ENTRIES: dict[str, Entry] = {entry.name: entry for entry in _ALL}
