from __future__ import annotations

import gzip
import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.errors import ReadError
from foreshock.sources import database, find_runs, open_run
from foreshock.sources.mlflow import SYSTEM

DATA = Path(__file__).parent / "data"
"""Databases of two runs of 12 steps, written by MLflow 3.17.2 and Trackio 0.43.0; see test_sources_trackers.py."""

MLFLOW, TRACKIO = "mlflow-3.17.sql", "trackio-0.43.sql"
Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Make a database of a recorded one and further statements."""

    def make(name: str, *statements: str) -> Path:
        path = tmp_path / "runs.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript("PRAGMA synchronous = off;" + (DATA / name).read_text())
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        return path

    return make


@pytest.mark.parametrize(("name", "factor"), [(MLFLOW, 1), (TRACKIO, 10)])
def test_each_run_of_a_database_is_read(made: Made, name: str, factor: int) -> None:
    path = made(name)
    for place in (*find_runs(path), f"{path}#first", f"{path}#second"):
        run = open_run(place)
        assert run.series["loss"].steps.tolist() == [factor * step for step in range(1, 13)]
        assert run.series["loss"].values.tolist() == [1 / step for step in range(1, 13)]
        assert math.isnan(run.series["kl"].values[2])
        assert run.series["kl"].values[3] == math.inf
        assert run.identity["source"]["rows"] == 12
        assert run.skipped == ({SYSTEM: 12} if name == MLFLOW else {})


@pytest.mark.parametrize("name", [MLFLOW, TRACKIO])
def test_a_database_of_several_runs_names_them(made: Made, name: str) -> None:
    path = made(name)
    first, second = find_runs(path)
    with pytest.raises(
        ReadError, match=r"holds 2 runs\. Pass one of: '.*#\w{32}' \(.*first\), '.*' \(.*second\)\."
    ) as caught:
        open_run(path)
    assert str(first) in str(caught.value)
    assert str(second) in str(caught.value)
    with pytest.raises(ReadError, match="holds 2 runs, and 'third' is not the id or the name of exactly one"):
        open_run(f"{path}#third")


def test_a_name_that_two_runs_share_is_not_enough(made: Made) -> None:
    path = made(MLFLOW, "UPDATE runs SET name = 'same'")
    with pytest.raises(ReadError, match=r"'same' is not the id or the name of exactly one"):
        open_run(f"{path}#same")


def test_a_name_may_hold_the_mark_itself(made: Made) -> None:
    path = made(TRACKIO, "UPDATE metrics SET run_name = 'lr#3' WHERE run_name = 'first'")
    assert open_run(f"{path}#lr#3").identity["name"] == "lr#3"


def test_the_only_run_needs_no_name(made: Made) -> None:
    path = made(MLFLOW, "UPDATE runs SET lifecycle_stage = 'deleted' WHERE name = 'second'")
    assert open_run(path).identity["name"] == "grpo/first"
    assert open_run(path.parent).identity["name"] == "grpo/first"


def test_an_early_trackio_knows_runs_by_name(tmp_path: Path) -> None:
    path = tmp_path / "grpo.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp, run_name, step, metrics)")
        connection.execute("CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name, config)")
        rows = [("a", 0, '{"loss": 0.5}'), ("b", 0, '{"loss": 1.5}'), ("a", 1, '{"loss": "NaN"}'), ("a", 2, '{"lo')]
        connection.executemany("INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", rows)
        connection.commit()
    run = open_run(f"{path}#a")
    assert run.series["loss"].steps.tolist() == [0, 1]
    assert run.skipped == {"torn or damaged lines": 1}


def test_a_database_with_a_write_ahead_log_is_left_as_it_is(made: Made) -> None:
    path = made(TRACKIO)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
    before = sorted(path.parent.iterdir())
    assert len(find_runs(path)) == 2
    assert sorted(path.parent.iterdir()) == before
    with closing(sqlite3.connect(path)) as writer:  # one that has the database open: what it wrote last is in its log
        writer.execute(
            "INSERT INTO metrics SELECT NULL, 'x', timestamp, 'third', step, metrics, NULL, NULL FROM metrics"
        )
        writer.commit()
        assert len(find_runs(path)) == 3


def test_other_databases_are_named_by_their_tables(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE cookies (a)")
    with pytest.raises(ReadError, match="an SQLite database of no known tracker; its tables are: cookies"):
        open_run(path)
    assert find_runs(path) == [path]
    assert find_runs(tmp_path) == []


def test_what_should_be_text_and_is_not(tmp_path: Path) -> None:
    path = tmp_path / "grpo.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE metrics (run_id, run_name, step, metrics)")
        connection.execute("CREATE TABLE configs (run_id)")
        rows = [(None, None, 1, "{}"), (7, x := b"\xff", "x", 5), (x, 1, x, None), ("a", "b", None, '{"loss": 1}')]
        connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?)", rows)
        connection.commit()
    with pytest.raises(ReadError, match="holds 4 runs"):
        open_run(path)
    assert open_run(f"{path}#a").series["loss"].values.tolist() == [1]
    for run in ("None", "7"):
        with pytest.raises(ReadError, match="holds no number of the run"):
            open_run(f"{path}#{run}")


def test_a_damaged_name_in_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    path.write_bytes(recorded(TRACKIO).replace(b"CREATE TABLE configs", b"CREATE\xff\xff\xff\xff\xff\xff configs"))
    with pytest.raises(ReadError, match="cannot be read as an SQLite database"):
        open_run(path)


def test_a_compressed_database(made: Made) -> None:
    path = made(MLFLOW)
    packed = path.with_suffix(".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(ReadError, match=r"cannot be read as an SQLite database .* Pass a whole, uncompressed one"):
        open_run(packed)


@cache
def recorded(name: str) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript((DATA / name).read_text())
        return connection.serialize()


@settings(deadline=None, max_examples=100)
@given(data=st.data())
@pytest.mark.parametrize("name", [MLFLOW, TRACKIO])
def test_damage_raises_nothing_but_read_errors(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / f"{name}.db"
    content = bytearray(recorded(name))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(16, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(16, len(content)))])
    try:
        for place in database.run_paths(path):
            open_run(place)
    except ReadError:
        pass
