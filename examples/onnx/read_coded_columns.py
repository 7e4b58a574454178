"""Ask a graph that `lvd export` wrote, without lvd: the coding beside it says how cells become numbers.

    python read_coded_columns.py homes.onnx new-homes.csv > priced.csv

It needs onnxruntime and numpy; `coded` needs nothing but Python, and is easily written in other languages.
"""

import csv
import json
import math
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

MISSING = {
    "",
    "NA",
    "N/A",
    "n/a",
    "<NA>",
    "#N/A",
    "#NA",
    "None",
    "null",
    "NULL",
    "nan",
    "NaN",
    "NAN",
    "-nan",
    "-NaN",
}


def coded(row, columns):
    """The features of a row of texts, given by the names of its columns."""
    return [number for column in columns for number in features(column, row[column["name"]])]


def features(column, text):
    if "codes" in column:
        return [float(column["codes"].index(text)) if text in column["codes"] else -1.0]
    if column["kind"] == "category":
        levels, rare = column.get("categories", []), column.get("rare", [])
        hot = [float(text == level) for level in levels]
        if not rare:
            return hot
        share = dict(zip(levels + rare, column["shares"], strict=True)).get(text, 0.0)
        means = [
            dict(zip(levels + rare, one, strict=False)).get(text, one[-1]) for one in column.get("means", [])
        ]
        return [*hot, float(text not in levels), share, *means]
    if text.strip() in MISSING:
        if "missing" not in column:
            raise ValueError(f"{column['name']} is missing, which no row of the model's table was")
        return [math.nan if number is None else number for number in column["missing"]]
    if column["kind"] == "boolean":
        return [{"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}[text.strip().lower()]]
    return [float(text)] if column["kind"] == "number" else parts_of(column, text.strip())


def parts_of(column, text):
    """The parts of a date or time; those without a zone are taken as they are."""
    if date := re.match(r"(\d+)[-/.](\d+)[-/.](\d+)(.*)", text):
        year, month, day, rest = date.groups()
        if len(year) < 4:  # it comes last
            year, month, day = day, *((month, year) if column["order"] == "dmy" else (year, month))
        text = f"{year}-{int(month):02}-{int(day):02}{rest}"
    moment = datetime.fromisoformat(text if date or "T" in text else f"1970-01-01T{text}")
    moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    seconds = moment.timestamp()
    parts = {
        "year": moment.year,
        "month": moment.month,
        "weekday": moment.weekday(),
        "hour": seconds % 86400 / 3600,
        "days": (seconds - column.get("origin", 0.0)) / 86400,
    }
    return [float(parts[part]) for part in column["parts"]]


if __name__ == "__main__":
    import numpy as np
    import onnxruntime

    graph, table = sys.argv[1:]
    coding = json.loads(Path(f"{graph}.json").read_text(encoding="utf-8"))
    with Path(table).open(encoding="utf-8-sig", newline="") as file:
        X = np.array([coded(row, coding["columns"]) for row in csv.DictReader(file)])
    answers = onnxruntime.InferenceSession(graph).run(coding["outputs"], {coding["input"]: X})
    writer = csv.writer(sys.stdout)
    writer.writerow(coding["outputs"])
    writer.writerows(zip(*(answer.tolist() for answer in answers), strict=True))
