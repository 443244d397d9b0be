from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.errors import ReadError
from foreshock.sources import describe, open_run, wandb
from foreshock.sources.compressed import TORN_END
from foreshock.sources.rows import NO_NUMBER
from foreshock.sources.wandb import DAMAGED, TORN

Written = Callable[..., Path]
RECORDED = gzip.decompress((Path(__file__).parent / "data" / "wandb-0.31.wandb.gz").read_bytes())
"""300 rows of history over several blocks, written by wandb 0.31.0; see test_sources_trackers.py."""


def log(*items: bytes) -> bytes:
    """A file of one history record a row, as :data:`RECORDED` has them."""
    content = wandb._MAGIC
    for item in items:
        record = b"\x12" + bytes([len(item)]) + item
        content += wandb._HEADER.pack(zlib.crc32(b"\1" + record), len(record), 1) + record
    return content


def pair(key: bytes, value: bytes) -> bytes:
    item = b"\x0a" + bytes([len(key)]) + key + value
    return b"\x0a" + bytes([len(item)]) + item


def test_a_recorded_run_is_read_whole(written: Written) -> None:
    run = open_run(written(RECORDED, "x"))
    assert run.identity["source"]["format"] == "W&B .wandb file"
    assert run.identity["source"]["rows"] == 301
    assert run.identity["source"]["step_key"] == "train/global_step"
    assert run.series["loss"].steps.tolist() == list(range(10, 3001, 10))
    assert run.series["loss"].values.tolist() == [1 / step for step in range(1, 301)]
    assert math.isnan(run.series["kl"].values[2])
    assert run.series["kl"].values[3] == math.inf
    assert run.series["eval_loss"].values.tolist() == [0.5]
    assert run.identity["wandb"]["name"] == "first"
    assert run.identity["config"] == {"beta": 0.04, "model": {"size": 3}}
    assert describe(run)["summary"] == {"best": 7}
    assert run.skipped == {NO_NUMBER: 300}  # the note of each row


def test_the_folder_of_a_run_and_the_folder_of_folders(tmp_path: Path) -> None:
    folder = tmp_path / "offline-run-1"
    (folder / "files").mkdir(parents=True)
    (folder / "run-1.wandb").write_bytes(RECORDED)
    (folder / "files" / "output.log").write_text("{'loss': 0.5, 'epoch': 0.1}\n")  # the same run, as it was printed
    assert len(open_run(folder).series["loss"]) == 300
    assert len(open_run(tmp_path).series["loss"]) == 300
    (folder / "run-2.wandb").write_bytes(RECORDED)
    with pytest.raises(ReadError, match=r"holds 2 W&B files\. Pass one: .*run-1\.wandb, .*run-2\.wandb\."):
        open_run(folder)


def test_values_of_every_type(written: Written) -> None:
    step = pair(b"_step", b"\x28\x06")  # 3, zigzag
    row = b"".join(
        (
            pair(b"number", b"\x31" + np.float64(0.25).tobytes()),
            pair(b"integer", b"\x28\x05"),  # -3
            pair(b"boolean", b"\x20\x01"),
            pair(b"text", b"\x3a\x01a"),
            pair(b"json", b"\x42\x03NaN"),
        )
    )
    run = open_run(written(log(step + row)))
    values = {key: series.values.tolist() for key, series in run.series.items() if key != "json"}
    assert values == {"number": [0.25], "integer": [-3], "boolean": [1]}
    assert math.isnan(run.series["json"].values[0])
    assert run.series["number"].steps.tolist() == [3]
    assert run.skipped == {NO_NUMBER: 1}


def test_a_torn_end_costs_the_last_record(written: Written) -> None:
    whole = log(*(pair(b"loss", b"\x28\x02") for _ in range(3)))
    for cut in (1, 10, 17):
        run = open_run(written(whole[:-cut]))
        assert len(run.series["loss"]) == 2
        assert run.skipped == {TORN: 1}


def test_a_torn_compressed_file(written: Written) -> None:
    run = open_run(written(gzip.compress(RECORDED)[:-2_000]))
    assert run.skipped[TORN_END] == 1
    assert 200 < len(run.series["loss"]) < 300


def test_damage_costs_the_rest_of_a_block(written: Written) -> None:
    damaged = bytearray(RECORDED)
    damaged[2 * 2**15 + 9] ^= 1
    run = open_run(written(damaged))
    assert run.skipped[DAMAGED] == 1
    assert 150 < len(run.series["loss"]) < 300
    assert run.series["loss"].steps[-1] == 3000


def test_a_file_without_history(written: Written) -> None:
    with pytest.raises(ReadError, match="without a row of history"):
        open_run(written(RECORDED[:400]))


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_damage_raises_nothing_but_read_errors(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(RECORDED[: data.draw(st.sampled_from([3_000, len(RECORDED)]))])
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        run = wandb.read(path)
    except ReadError:
        return
    for step, value in zip(run.series["loss"].steps, run.series["loss"].values, strict=True):
        assert value == 1 / (step // 10)


@settings(deadline=None, max_examples=100)
@given(record=st.binary(max_size=60))
def test_a_whole_record_of_anything(tmp_path_factory: pytest.TempPathFactory, record: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "anything"
    framed = wandb._HEADER.pack(zlib.crc32(b"\1" + record), len(record), 1) + record
    path.write_bytes(log(pair(b"loss", b"\x28\x02")) + framed + log(record)[len(wandb._MAGIC) :])
    assert len(wandb.read(path).series["loss"]) >= 1
