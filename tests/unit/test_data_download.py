"""Downloads, against a real HTTP server on this machine that behaves well and badly."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from lvd._validation import InputError
from lvd.data import ENTRIES, Entry, load_dataset
from lvd.data.download import DownloadError, OpenML, WebFile, parse_csv, parse_whitespace, read_url

CSV = b"size,price,note\n1,10,a\n2,20,b\n3,31,c\n"
TOY = Entry(
    name="toy",
    rows=(3,),
    columns=("size", "price"),
    targets=("price",),
    home="a test",
    source=WebFile("", parse_csv),
    license_note="none",
    checksums=("",),
)


class Server:
    """Answers each path with what was put there, and remembers what was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[BaseHTTPRequestHandler], object]] = {}
        self.asked: list[str] = []
        self.closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                outer.answers.get(self.path, lambda handler: handler.send_error(404))(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def send(self, path: str, body: bytes, *, code: int = 200, **headers: str) -> str:
        """Answer `path` with a body and headers; its address."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(code)
            for name, value in ({"Content-Length": str(len(body))} | named).items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(body)

        self.answers[path] = answer
        return self.url + path

    def in_turn(self, path: str, *others: str) -> str:
        """Answer `path` as the `others`, one after the other; its address."""
        turns = [self.answers[other] for other in others]

        def answer(handler: BaseHTTPRequestHandler) -> None:
            turns.pop(0)(handler)

        self.answers[path] = answer
        return self.url + path


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.closing.set()
    server.http.shutdown()
    server.http.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("LVD_DATA", raising=False)
    monkeypatch.setenv("LVD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"


def zipped(**members: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(name.replace("_csv", ".csv"), body)
    return data.getvalue()


def toy(url: str, *, member: str | None = None, right: bool = True) -> Entry:
    checksum = "cc6b55306a72233908101862aab3c39760a7ab41adb2439c6de312fa43d4caad" if right else "0" * 64
    return replace(TOY, source=WebFile(url, parse_csv, member, attempts=1), checksums=(checksum,))


def test_a_body_comes_whole_with_progress(server: Server) -> None:
    body = bytes(range(256)) * 1000
    told: list[tuple[int, int | None]] = []
    assert read_url(server.send("/a", body), progress=lambda *now: told.append(now)) == body
    assert told[-1] == (256_000, 256_000)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len(told) > 1


def test_an_unknown_length_is_told_as_such(server: Server) -> None:
    def chunked(handler: BaseHTTPRequestHandler) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")

    server.answers["/chunked"] = chunked
    told: list[tuple[int, int | None]] = []
    assert read_url(server.url + "/chunked", progress=lambda *now: told.append(now)) == b"hello world"
    assert told[-1] == (11, None)


def test_redirects_are_followed(server: Server) -> None:
    server.send("/new", b"there")
    server.send("/moved", b"", code=302, Location="/new")
    assert read_url(server.send("/old", b"", code=301, Location=f"{server.url}/moved")) == b"there"
    assert server.asked == ["/old", "/moved", "/new"]


def test_a_redirect_in_a_circle_ends(server: Server) -> None:
    url = server.send("/round", b"", code=302, Location="/round")
    with pytest.raises(DownloadError, match=r"answered 302 .*infinite loop"):
        read_url(url, attempts=1)


def test_not_found_is_not_tried_again(server: Server) -> None:
    with pytest.raises(DownloadError, match=r"it answered 404 Not Found; attempts: 1"):
        read_url(server.url + "/nothing")
    assert server.asked == ["/nothing"]


def test_a_busy_server_is_asked_again(server: Server) -> None:
    server.send("/busy", b"", code=503)
    server.send("/fine", b"fine")
    assert read_url(server.in_turn("/x", "/busy", "/busy", "/fine"), attempts=3, pause_s=0.001) == b"fine"
    with pytest.raises(DownloadError, match="answered 503 Service Unavailable; attempts: 2"):
        read_url(server.url + "/busy", attempts=2, pause_s=0.001)


def test_a_truncated_body_is_noticed_and_tried_again(server: Server) -> None:
    cut = server.send("/cut", b"half of ", Content_Length="16")
    with pytest.raises(DownloadError, match="the connection ended after 8 of 16 bytes"):
        read_url(cut, attempts=1)
    server.send("/whole", b"half of the rest")
    assert read_url(server.in_turn("/x", "/cut", "/whole"), pause_s=0.001) == b"half of the rest"


def test_a_slow_answer_is_given_up(server: Server) -> None:
    server.answers["/slow"] = lambda _: server.closing.wait(20)
    with pytest.raises(DownloadError, match=r"it did not answer within 0\.1 s; attempts: 2"):
        read_url(server.url + "/slow", timeout_s=0.1, attempts=2, pause_s=0.001)
    assert server.asked == ["/slow", "/slow"]


def test_a_body_that_stalls_is_given_up(server: Server) -> None:
    def stall(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"first")
        handler.wfile.flush()
        server.closing.wait(20)

    server.answers["/stall"] = stall
    with pytest.raises(DownloadError, match=r"it did not answer within 0\.1 s"):
        read_url(server.url + "/stall", timeout_s=0.1, attempts=1)


def test_nobody_listening() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/x"
        with pytest.raises(DownloadError, match=r"failed .*refused"):
            read_url(url, attempts=1)


def test_a_download_is_checked_cached_and_not_repeated(server: Server, cache: Path) -> None:
    entry = toy(server.send("/toy.zip", zipped(readme=b"read me", hour_csv=CSV)), member="hour.csv")
    told: list[int] = []
    first = load_dataset(entry, progress=lambda done, _: told.append(done))
    np.testing.assert_array_equal(first.X, [[1], [2], [3]])
    np.testing.assert_array_equal(first.y, [10, 20, 31])
    assert first.feature_names == ("size",)
    assert told
    assert [path.name for path in cache.iterdir()] == ["toy.csv.gz"]
    assert gzip.decompress((cache / "toy.csv.gz").read_bytes()) == b"size,price\n1,10\n2,20\n3,31\n"
    second = load_dataset(entry)
    np.testing.assert_array_equal(second.X, first.X)
    assert server.asked == ["/toy.zip"]


@pytest.mark.parametrize(
    ("body", "member", "message"),
    [
        (
            CSV,
            None,
            "the toy table does not hold the expected values .checksum [0-9a-f]{12}, expected 000000",
        ),
        (b"size,price\n1,10\n", None, "the toy table must have 3 rows, got 1"),
        (b"<html>Sign in</html>", None, "sent 20 bytes that are not the table .'size'"),
        (b"\xff\xfe", None, "that are not the table .*decode"),
        (b"size,price\n1\n", None, "that are not the table .row 1 has 1 cells, but there are 2 columns"),
        (CSV, "hour.csv", "that are not the table .File is not a zip file"),
        (zipped(day_csv=CSV), "hour.csv", "that are not the table .*no item named 'hour.csv' in the archive"),
        (zipped(hour_csv=CSV * 50)[:-30], "hour.csv", "that are not the table .File is not a zip file"),
    ],
)
def test_what_is_not_the_table_is_refused_and_not_cached(
    server: Server, cache: Path, body: bytes, member: str | None, message: str
) -> None:
    url = server.send("/toy", body)
    with pytest.raises(InputError, match=message) as refusal:
        load_dataset(toy(url, member=member, right=False))
    assert f"could not be downloaded from {url}: " in str(refusal.value)
    assert "toy.csv or toy.csv.gz was not found in" in str(refusal.value)
    assert not cache.exists()


def test_a_failed_download_says_what_to_do(server: Server, cache: Path) -> None:
    with pytest.raises(InputError) as refusal:
        load_dataset(toy(server.url + "/gone"))
    assert str(refusal.value) == (
        f"toy.csv or toy.csv.gz was not found in {cache}, and it could not be downloaded from "
        f"{server.url}/gone: it answered 404 Not Found; attempts: 1. Put the table (3 rows; a header line "
        "with the 2 columns size, price; published as a test) into one of these folders, or into another "
        "and name it in data_dir or in the environment variable LVD_DATA"
    )


def test_a_cache_that_cannot_be_written_is_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LVD_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"file/data cannot be written .*set LVD_CACHE"):
        load_dataset(toy(server.send("/toy.csv", CSV)))


def test_yacht_in_the_form_of_its_home(server: Server, shared_dir: Path, cache: Path) -> None:
    lines = (shared_dir / "data" / "yacht.csv").read_text().splitlines()[1:]
    text = "\n".join(f" {line.replace(',', '  ')} " for line in lines) + "\n\n"
    body = zipped(**{"yacht_hydrodynamics.data": text.encode()})
    source = ENTRIES["yacht"].source
    assert isinstance(source, WebFile)
    assert source.parse is parse_whitespace
    entry = replace(ENTRIES["yacht"], source=replace(source, url=server.send("/yacht.zip", body)))
    downloaded = load_dataset(entry)
    on_disk = load_dataset("yacht", data_dir=shared_dir / "data")
    np.testing.assert_array_equal(downloaded.X, on_disk.X)
    np.testing.assert_array_equal(downloaded.y, on_disk.y)
    np.testing.assert_array_equal(load_dataset("yacht", download=False).X, on_disk.X)
    assert (cache / "yacht.csv.gz").is_file()


def test_bike_in_the_form_of_its_home(server: Server, shared_dir: Path) -> None:
    body = zipped(hour_csv=gzip.decompress((shared_dir / "data" / "bike.csv.gz").read_bytes()))
    source = replace(ENTRIES["bike"].source, url=server.send("/bike.zip", body))
    assert load_dataset(replace(ENTRIES["bike"], source=source), protocol="paper").X.shape == (17379, 48)


@pytest.fixture
def openml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A folder in which scikit-learn finds dataset 7 as if it had fetched it before."""
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "sklearn"))
    home = tmp_path / "sklearn" / "openml" / "openml.org"

    def fill(size_type: str) -> None:
        arff = (
            f"@RELATION toy\n@ATTRIBUTE size {size_type}\n@ATTRIBUTE rad {{1,2,24}}\n@ATTRIBUTE price REAL\n"
            "@DATA\n1.5,24,10\n2.0,1,20\n3,2,31\n"
        ).encode()
        kinds = {"size": "numeric" if size_type == "REAL" else "string", "rad": "nominal", "price": "numeric"}
        features = [
            {
                "index": str(i),
                "name": name,
                "data_type": kind,
                "is_target": "true" if name == "price" else "false",
                "is_ignore": "false",
                "is_row_identifier": "false",
                "number_of_missing_values": "0",
            }
            for i, (name, kind) in enumerate(kinds.items())
        ]
        about = {
            "id": "7",
            "name": "toy",
            "version": "1",
            "description": "a toy",
            "format": "ARFF",
            "status": "active",
            "file_id": "70",
            "url": "https://www.openml.org/data/v1/download/70/toy.arff",
            "md5_checksum": hashlib.md5(arff).hexdigest(),
        }
        qualities = [{"name": "NumberOfInstances", "value": "3.0"}]
        for path, content in {
            "api/v1/json/data/7": json.dumps({"data_set_description": about}).encode(),
            "api/v1/json/data/features/7": json.dumps({"data_features": {"feature": features}}).encode(),
            "api/v1/json/data/qualities/7": json.dumps({"data_qualities": {"quality": qualities}}).encode(),
            "data/v1/download/70/toy.arff": arff,
        }.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / f"{path}.gz").write_bytes(gzip.compress(content))

    return fill


def test_openml_labels_become_their_numbers(openml: Callable[[str], None]) -> None:
    openml("REAL")
    assert OpenML(7).fetch(("size", "rad", "price")) == {
        "size": ["1.5", "2.0", "3.0"],
        "rad": ["24.0", "1.0", "2.0"],
        "price": ["10.0", "20.0", "31.0"],
    }


def test_openml_refusals_become_ours(openml: Callable[[str], None]) -> None:
    openml("STRING")
    with pytest.raises(DownloadError, match=r"scikit-learn could not fetch it \(STRING"):
        OpenML(7).fetch(("size", "rad", "price"))
