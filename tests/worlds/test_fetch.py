"""Downloads from a server of the test's own: whole, resumed, refused, and never half a file in place."""

from __future__ import annotations

import bz2
import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamark.cli.data import app
from seamark.worlds.catalogue import CATALOGUE, DataFile, DataSet
from seamark.worlds.fetch import fetch
from seamark.worlds.files import DataError

CONTENT = bz2.compress(bytes(range(256)) * 40)
OTHER = bz2.compress(b"1 1:1\n2 1:2\n")


@dataclass
class Server:
    """What the handler does, and what it was asked."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    knows_ranges: bool = True
    sends_wrong_range: bool = False
    n_bytes_until_break: int | None = None
    status: int = 200
    hangs: bool = False
    ranges: list[str | None] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range")
        self.ranges.append(asked)
        content = self.files.get(handler.path.rpartition("/")[2])
        if self.hangs:
            self.done.wait()
            return
        if content is None or self.status != 200:
            handler.send_error(404 if content is None else self.status)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.knows_ranges else 0
        if start >= len(content):
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        if start:
            shown = 0 if self.sends_wrong_range else start
            handler.send_header("Content-Range", f"bytes {shown}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        handler.wfile.write(content[start : self.n_bytes_until_break])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    state = Server(files={"a.bz2": CONTENT, "b.bz2": OTHER})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{http.server_address[1]}/sets/"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    state.done.set()
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """A set whose train file has a published checksum and whose test file has none."""
    row = DataSet(
        "tiny",
        n_train=1,
        n_test=1,
        n_features=1,
        n_classes=2,
        train=DataFile(
            "a.bz2", ("tiny",), {hashlib.sha256(CONTENT).hexdigest(): "official"}, address="http://a.invalid/a"
        ),
        test=DataFile("b.bz2", ("tiny",), address="http://a.invalid/b"),
    )
    monkeypatch.setitem(CATALOGUE, "tiny", row)
    return row


pytestmark = pytest.mark.usefixtures("tiny")


def refusal(server: Server, folder: Path, **options: float) -> str:
    with pytest.raises(DataError) as refused:
        fetch("tiny", folder, base_url=server.url, **options)
    message = str(refused.value)
    assert "\n" not in message
    return message


def part(folder: Path, content: bytes) -> Path:
    path = folder / "tiny/a.bz2.part"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_files_arrive_whole_verified_and_under_their_names(server: Server, tmp_path: Path) -> None:
    reports: list[tuple[str, int, int | None]] = []

    files = fetch("tiny", tmp_path, base_url=server.url, progress=lambda *report: reports.append(report))

    assert [file.status for file in files] == ["official", "no published checksum"]
    assert [file.path for file in files] == [tmp_path / "tiny/a.bz2", tmp_path / "tiny/b.bz2"]
    assert [file.path.read_bytes() for file in files] == [CONTENT, OTHER]
    assert files[1].sha256 == hashlib.sha256(OTHER).hexdigest()
    assert sorted(path.name for path in (tmp_path / "tiny").iterdir()) == ["a.bz2", "b.bz2"]
    assert reports[0] == ("a.bz2", 0, len(CONTENT))
    assert reports[-1] == ("b.bz2", len(OTHER), len(OTHER))


def test_a_second_fetch_asks_for_nothing(server: Server, tmp_path: Path) -> None:
    fetch("tiny", tmp_path, base_url=server.url)
    server.ranges.clear()

    files = fetch("tiny", tmp_path, base_url=server.url)

    assert [file.is_new for file in files] == [False, False]
    assert server.ranges == []


def test_a_file_that_is_not_the_official_one_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    fetch("tiny", tmp_path, base_url=server.url)
    (tmp_path / "tiny/a.bz2").write_bytes(b"altered")

    files = fetch("tiny", tmp_path, base_url=server.url)

    assert [file.is_new for file in files] == [True, False]
    assert files[0].path.read_bytes() == CONTENT


def test_a_part_is_resumed_where_it_ends(server: Server, tmp_path: Path) -> None:
    part(tmp_path, CONTENT[:50])

    files = fetch("tiny", tmp_path, base_url=server.url)

    assert files[0].path.read_bytes() == CONTENT
    assert server.ranges == ["bytes=50-", None]


def test_a_server_that_ignores_ranges_is_read_from_the_start(server: Server, tmp_path: Path) -> None:
    part(tmp_path, b"x" * 50)
    server.knows_ranges = False

    files = fetch("tiny", tmp_path, base_url=server.url)

    assert files[0].path.read_bytes() == CONTENT


def test_a_server_that_sends_another_part_is_asked_again_from_the_start(server: Server, tmp_path: Path) -> None:
    part(tmp_path, b"x" * 50)
    server.sends_wrong_range = True

    files = fetch("tiny", tmp_path, base_url=server.url)

    assert files[0].path.read_bytes() == CONTENT
    assert server.ranges == ["bytes=50-", None, None]


def test_a_part_that_is_too_long_is_dropped(server: Server, tmp_path: Path) -> None:
    """The server answers 416, for which the download starts again."""
    part(tmp_path, b"x" * (len(CONTENT) + 1))

    files = fetch("tiny", tmp_path, base_url=server.url)

    assert files[0].path.read_bytes() == CONTENT


def test_a_broken_connection_keeps_the_part_and_the_next_fetch_resumes(server: Server, tmp_path: Path) -> None:
    server.n_bytes_until_break = 60

    message = refusal(server, tmp_path)

    assert f"ended after 60 of {len(CONTENT)} bytes; run again to resume" in message
    assert (tmp_path / "tiny/a.bz2.part").read_bytes() == CONTENT[:60]
    assert not (tmp_path / "tiny/a.bz2").exists()

    server.n_bytes_until_break = None
    server.ranges.clear()
    assert fetch("tiny", tmp_path, base_url=server.url)[0].path.read_bytes() == CONTENT
    assert server.ranges[0] == "bytes=60-"


def test_a_wrong_checksum_removes_the_part_and_says_so(server: Server, tmp_path: Path) -> None:
    server.files["a.bz2"] = OTHER

    message = refusal(server, tmp_path)

    assert f"has sha256 {hashlib.sha256(OTHER).hexdigest()}, not {hashlib.sha256(CONTENT).hexdigest()}" in message
    assert "removed" in message
    assert list((tmp_path / "tiny").iterdir()) == []


@pytest.mark.parametrize("content", [b"<html>log in first</html>", OTHER[:-5]])
def test_without_a_checksum_a_file_that_does_not_decompress_is_refused(
    server: Server, tmp_path: Path, content: bytes
) -> None:
    server.files["b.bz2"] = content

    assert "is no whole bz2 file; removed" in refusal(server, tmp_path)
    assert [path.name for path in (tmp_path / "tiny").iterdir()] == ["a.bz2"]


@pytest.mark.parametrize(("status", "shown"), [(404, "404 Not Found"), (503, "503 Service Unavailable")])
def test_a_refusing_server_is_quoted(server: Server, tmp_path: Path, status: int, shown: str) -> None:
    server.status = status

    assert f"{server.url}a.bz2 answered {shown}" in refusal(server, tmp_path)


def test_a_silent_server_is_given_up(server: Server, tmp_path: Path) -> None:
    server.hangs = True

    assert "timed out" in refusal(server, tmp_path, timeout=0.1)


@pytest.mark.parametrize("url", ["file:///etc", "ftp://a.invalid", "nonsense"])
def test_only_web_addresses_are_opened(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="is not an http or https address"):
        fetch("tiny", tmp_path, base_url=url)


def test_an_unreachable_server_is_named(server: Server, tmp_path: Path) -> None:
    server.url = "http://127.0.0.1:1/"

    assert "cannot reach http://127.0.0.1:1/a.bz2" in refusal(server, tmp_path)


def test_a_folder_that_cannot_be_written_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert "cannot write" in refusal(server, tmp_path / "file")


def test_sets_without_an_official_address_say_so(tmp_path: Path) -> None:
    for name in ("reuters-r52", "rcv1-dev", "rcv1-binary"):
        with pytest.raises(DataError, match="has no official address; set SEAMARK_DATA"):
            fetch(name, tmp_path)


def test_a_mirror_may_serve_a_set_without_address_if_its_checksum_is_known(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {hashlib.sha256(CONTENT).hexdigest(): "rebuilt"}
    row = DataSet("own", 1, 1, 1, 2, DataFile("a.bz2", ("own",), known), DataFile("b.bz2", ("own",), known))
    monkeypatch.setitem(CATALOGUE, "own", row)

    with pytest.raises(DataError, match=r"b\.bz2: .* has sha256"):
        fetch("own", tmp_path, base_url=server.url)

    server.files["b.bz2"] = CONTENT
    assert [file.status for file in fetch("own", tmp_path, base_url=server.url)] == ["rebuilt", "rebuilt"]


def test_a_set_that_ships_with_scikit_learn_needs_nothing(tmp_path: Path) -> None:
    assert fetch("digits", tmp_path) == ()


def test_official_addresses_are_where_libsvm_publishes() -> None:
    addresses = [file.address for name in ("usps", "news20", "rcv1") for file in CATALOGUE[name].files]

    assert all(str(a).startswith("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/") for a in addresses)


# The command line


@pytest.fixture
def run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SEAMARK_DATA", raising=False)

    def invoke(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, ["fetch", *arguments, "--base-url", server.url])
        return result.exit_code, result.stdout, result.stderr

    return invoke


def test_the_command_puts_files_where_they_are_found(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, _ = run("tiny", "digits")

    assert code == 0
    assert "a.bz2: downloaded, official" in out
    assert "b.bz2: downloaded, no published checksum" in out
    assert "digits: ships with scikit-learn" in out
    assert CliRunner().invoke(app, ["path", "tiny"]).stdout.split() == [
        str(tmp_path / "seamark/data/tiny/a.bz2"),
        str(tmp_path / "seamark/data/tiny/b.bz2"),
    ]
    assert "already there" in run("tiny")[1]


def test_the_command_says_how_to_use_another_folder(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, _ = run("tiny", "--folder", str(tmp_path / "mine"))

    assert code == 0
    assert f"export SEAMARK_DATA={tmp_path / 'mine'}" in out
    assert (tmp_path / "mine/tiny/a.bz2").is_file()


def test_a_failed_download_is_one_line_and_exit_code_one(
    run: Callable[..., tuple[int, str, str]], server: Server
) -> None:
    server.files.clear()

    code, _, err = run("tiny")

    assert code == 1
    assert err.count("\n") == 1
    assert "answered 404 Not Found" in err
