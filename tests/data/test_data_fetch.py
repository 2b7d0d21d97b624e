"""Downloads from a server of our own: resumed and checked; the command as a user meets it."""

import hashlib
import http.server
import io
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from support import data_files
from support.data_files import tar_of

from pdeplus.cli import main
from pdeplus.data import _download, cifar10
from pdeplus.data._download import Origin, SecondSource, Unreachable, fetch, get
from pdeplus.data.cifar10 import Cifar10
from pdeplus.errors import UserError


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves bytes by path, honours Range, and breaks off where it is told to."""

    def do_GET(self):
        body = self.server.files.get(self.path)
        self.server.asked.append(self.headers.get("Range"))
        if body is None:
            return self.send_error(404)
        start = int((self.headers.get("Range") or "bytes=0-")[6:].rstrip("-")) if self.server.ranges else 0
        if start >= len(body):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        stop = self.server.breaks.pop(0) if self.server.breaks else len(body)
        self.wfile.write(body[start:stop])
        return None

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        served.files, served.asked, served.breaks, served.ranges = {}, [], [], True
        served.url = f"http://127.0.0.1:{served.server_port}"
        thread = threading.Thread(target=served.serve_forever, args=(0.02,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def offer(server, file: str, body: bytes) -> tuple[str, str]:
    """Let the server have a file; its URL and its MD5."""
    server.files[f"/{file}"] = body
    return f"{server.url}/{file}", hashlib.md5(body).hexdigest()


BODY = data_files.pixels(0, 300_000).tobytes()


def test_a_broken_connection_is_taken_up_where_it_broke(server, tmp_path):
    download = offer(server, "x.tar", BODY)
    server.breaks = [100_000, 250_000]
    assert fetch(*download, tmp_path).read_bytes() == BODY
    assert server.asked == [None, "bytes=100000-", "bytes=250000-"]
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar"]


def test_an_earlier_calls_part_is_gone_on_with(server, tmp_path):
    download = offer(server, "x.tar", BODY)
    (tmp_path / "x.tar.part").write_bytes(BODY[:1234])
    assert fetch(*download, tmp_path).read_bytes() == BODY
    assert server.asked == ["bytes=1234-"]


def test_a_complete_part_is_only_checked(server, tmp_path):
    (tmp_path / "x.tar.part").write_bytes(BODY)
    assert fetch(*offer(server, "x.tar", BODY), tmp_path).read_bytes() == BODY


def test_a_server_without_ranges_starts_anew(server, tmp_path):
    server.ranges = False
    (tmp_path / "x.tar.part").write_bytes(b"something else")
    assert fetch(*offer(server, "x.tar", BODY), tmp_path).read_bytes() == BODY


def test_a_wrong_checksum_is_refused_and_leaves_nothing(server, tmp_path):
    download = offer(server, "x.tar", BODY)[0], "0" * 32
    with pytest.raises(UserError, match="MD5"):
        fetch(*download, tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x.tar").write_bytes(b"put here by hand")
    with pytest.raises(UserError, match="x.tar is damaged or another file"):
        fetch(*download, tmp_path)
    assert (tmp_path / "x.tar").read_bytes() == b"put here by hand"


def test_a_file_that_is_there_is_not_asked_for(server, tmp_path):
    download = offer(server, "x.tar", BODY)
    (tmp_path / "x.tar").write_bytes(BODY)
    fetch(*download, tmp_path)
    assert server.asked == []


def test_a_server_that_gives_nothing_is_left_and_the_part_kept(server, tmp_path):
    download = offer(server, "x.tar", BODY)
    server.breaks = [1000, *[1000] * 20]
    with pytest.raises(Unreachable, match="keeps breaking"):
        fetch(*download, tmp_path)
    assert (tmp_path / "x.tar.part").read_bytes() == BODY[:1000]
    with pytest.raises(Unreachable, match="404"):
        fetch(f"{server.url}/nothing", "", tmp_path)


@pytest.fixture
def small_set(server, monkeypatch):
    """A data set of two files in an archive, under the name cifar100."""
    entries = {"small/one": BODY, "small/two": b"2"}
    origin = Origin(
        name="cifar100",
        folder="small",
        marks=("one", "two"),
        size="1 MB",
        downloads=dict([offer(server, "small.tar.gz", tar_of(entries))]),
    )
    monkeypatch.setattr(_download, "origin_of", lambda name: origin)
    return origin


def test_get_leaves_the_complete_folder_and_nothing_else(small_set, server, tmp_path):
    assert "is in" in get("cifar100", str(tmp_path / "new"))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["small"]
    assert (tmp_path / "new" / "small" / "one").read_bytes() == BODY
    assert "already" in get("cifar100", str(tmp_path / "new"))
    assert len(server.asked) == 1


def test_an_archive_put_there_by_hand_is_used_and_left(small_set, server, tmp_path):
    (tmp_path / "small.tar.gz").write_bytes(server.files.pop("/small.tar.gz"))
    get("cifar100", str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small", "small.tar.gz"]
    assert server.asked == []


def test_nothing_half_unpacked_is_taken_for_the_set(small_set, tmp_path, monkeypatch):
    def interrupted(archive, folder):
        (folder / "small").mkdir(parents=True)
        (folder / "small" / "one").write_bytes(b"")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(_download, "unpack", interrupted)
        with pytest.raises(KeyboardInterrupt):
            get("cifar100", str(tmp_path))
    assert not (tmp_path / "small").exists()
    get("cifar100", str(tmp_path))
    assert (tmp_path / "small" / "one").read_bytes() == BODY
    (tmp_path / "small" / "two").unlink()
    with pytest.raises(UserError, match="small has no two; move it away"):
        get("cifar100", str(tmp_path))


def test_an_archive_of_something_else_is_refused(server, small_set, monkeypatch, tmp_path):
    other = replace(small_set, downloads=dict([offer(server, "other.tar.gz", tar_of({"other/one": b"1"}))]))
    monkeypatch.setattr(_download, "origin_of", lambda name: other)
    with pytest.raises(UserError, match="has no small/one"):
        get("cifar100", str(tmp_path))
    assert not (tmp_path / "small").exists()


def test_several_plain_files_are_the_set(server, small_set, monkeypatch, tmp_path):
    downloads = dict([offer(server, "one.gz", b"1"), offer(server, "two.gz", b"2")])
    monkeypatch.setattr(_download, "origin_of", lambda name: replace(small_set, marks=("one*",), downloads=downloads))
    get("cifar100", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
    assert (tmp_path / "small" / "two.gz").read_bytes() == b"2"


def test_offline_costs_one_line_with_what_to_put_where(server, small_set, tmp_path):
    server.files.clear()
    with pytest.raises(UserError) as refused:
        get("cifar100", str(tmp_path))
    assert f"download {next(iter(small_set.downloads))} elsewhere, put it into {tmp_path}" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_second_source_steps_in_and_its_failure_is_told(server, small_set, monkeypatch, tmp_path):
    server.files.clear()

    def make(folder):
        (folder / "one").write_bytes(b"1")
        (folder / "two").write_bytes(b"2")

    def fail(folder):
        raise UserError("npm pack failed")

    for second, command in ((fail, "python3"), (make, "no-such-command")):
        source = SecondSource(about="a mirror", command=command, make=second)
        monkeypatch.setattr(shutil, "which", lambda name: name if name == "python3" else None)
        monkeypatch.setattr(_download, "origin_of", lambda name, s=source: replace(small_set, second=s))
        with pytest.raises(UserError, match="elsewhere, put it into"):
            get("cifar100", str(tmp_path))
        assert list(tmp_path.iterdir()) == []
    good = SecondSource(about="a mirror", command="python3", make=make)
    monkeypatch.setattr(_download, "origin_of", lambda name: replace(small_set, second=good))
    assert "from a mirror" in get("cifar100", str(tmp_path))


def test_the_npm_packages_pictures_become_the_original_rows(tmp_path, monkeypatch):
    """Ten thousand images per file are many: the same layout, with every picture of one colour by its place."""
    rows = np.zeros((10_000, 1024, 3), np.uint8)
    rows[..., 0] = np.arange(10_000)[:, None] % 250
    rows[..., 1] = np.arange(1024)[None, :] // 32
    out = io.BytesIO()
    Image.fromarray(rows).save(out, "PNG", compress_level=1)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    files = {f"package/{name}.png": out.getvalue() for name in names}
    labels = {"train": [n % 10 for n in range(50_000)], "test": [n % 10 for n in range(10_000)]}
    files |= {f"package/{part}_lables.json": str(values).encode() for part, values in labels.items()}
    (tmp_path / "x.tgz").write_bytes(tar_of(files, "w"))
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    with pytest.raises(UserError, match="is not CIFAR-10"):
        cifar10.from_package(tmp_path / "x.tgz", folder)
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(cifar10, "MEANS", tuple(rows.mean((0, 1))))
    cifar10.from_package(tmp_path / "x.tgz", folder)
    train = Cifar10(root=str(tmp_path)).train()
    assert train.labels.tolist() == labels["train"]
    assert (train.images[:, 0, 0, 0].numpy() == np.arange(50_000) % 10_000 % 250).all()
    assert (train.images[7, 1] == np.arange(32, dtype=np.uint8)[:, None].repeat(32, 1)).all()  # row by row
    assert (train.images[:100, 2] == 0).all()


def answer(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    shown = capsys.readouterr()
    return int(left.value.code or 0), shown.out, shown.err


def test_the_command_lists_what_is_here(capsys, tmp_path):
    data_files.make("cifar10", tmp_path)
    code, out, err = answer(capsys, "data", "list", "--root", str(tmp_path))
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines["cifar10"].endswith(f"170 MB  {tmp_path / 'cifar-10-batches-py'}")
    assert "not here; pdeplus data get cifar100_c" in lines["cifar100_c"]
    assert "needs no download" in lines["digits"]
    assert out.splitlines()[-1] == f"data folder: {tmp_path}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["get", "cifar"], ["'cifar' is not known", "cifar10"]),
        (["get", "pacs"], ["https://", "photo, art_painting, cartoon, sketch", "PACS"]),
        (["get"], ["data get NAME"]),
        (["list", "cifar10"], ["data list takes no name"]),
        (["fetch"], ["fetch", "list", "get"]),
    ],
)
def test_mistakes_cost_one_line(capsys, tmp_path, arguments, words):
    code, out, err = answer(capsys, "data", *arguments, "--root", str(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert all(word in err for word in words), err
    assert list(tmp_path.iterdir()) == []


def test_the_command_needs_nothing_for_what_is_installed_and_has_help(capsys):
    assert answer(capsys, "data", "get", "digits")[1] == "digits needs no download\n"
    code, out, _ = answer(capsys, "data", "--help")
    assert code == 0
    assert "example:\n  pdeplus data list" in out


@pytest.mark.filterwarnings("ignore:.*waiting for its end")
def test_of_two_that_get_a_set_the_second_finds_it(small_set, server, tmp_path, monkeypatch):
    filling, fill, said = threading.Event(), _download._fill, list[str]()

    def slowly(*given):
        filling.set()
        threading.Event().wait(0.3)
        return fill(*given)

    monkeypatch.setattr(_download, "_fill", slowly)
    (tmp_path / ".small-left").mkdir()
    both = [threading.Thread(target=lambda: said.append(get("cifar100", str(tmp_path)))) for _ in range(2)]
    both[0].start()
    assert filling.wait(100)
    both[1].start()
    for one in both:
        one.join()
    assert ["already" in words for words in said] == [False, True]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
