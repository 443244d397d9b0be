"""Whatever bytes a dump holds, a reader reads rows and counts what it skips, or raises ReadError. So does the audit."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path

import pytest
import rollout_dumps as dumps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foreshock.audit import ON_TOKENS
from foreshock.audit.tally import Tally
from foreshock.errors import ReadError
from foreshock.sources.dumps import formats

NAMES = {
    "prime-rl token export": "step_3/rank_0.jsonl",
    "NeMo-RL train data": "train_data_step3.jsonl",
    "slime train data": "3_0.pt",
    "SkyRL training input": "global_step_3_training_input.pkl",
}

Edit = tuple[float, bytes, int]
edits: st.SearchStrategy[list[Edit]] = st.lists(
    st.tuples(st.floats(0, 1), st.binary(max_size=6), st.integers(0, 40)), min_size=1, max_size=4
)


def mutated(content: bytes, changes: list[Edit]) -> bytes:
    """Replace some bytes at places between start (0) and end (1) by others."""
    for place, new, removed in changes:
        at = int(place * len(content))
        content = content[:at] + new + content[at + removed :]
    return content


@pytest.fixture
def samples(tmp_path: Path) -> dict[str, bytes]:
    steps = [dumps.rollouts(0, count=2)]
    slime = dumps.slime(tmp_path / "slime", steps, ranks=1) / "train_data" / "0_0.pt"
    found = {
        "prime-rl token export": dumps.prime_rl(tmp_path, steps, ranks=1) / "token_exports" / "step_0" / "rank_0.jsonl",
        "NeMo-RL train data": dumps.nemo_rl(tmp_path / "nemo", steps) / "train_data_step1.jsonl",
        "slime train data": slime,
    }
    for version in ("torch", "both", "numpy"):
        folder = dumps.skyrl(tmp_path / version, steps, version)
        found[f"SkyRL training input {version}"] = folder / "global_step_1_training_input.pkl"
    return {name: path.read_bytes() for name, path in found.items()}


def read_all(name: str, path: Path, content: bytes) -> None:
    known = next(known for known in formats.FORMATS if name.startswith(known.name))
    place = path / NAMES[known.name]
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(content)
    with contextlib.suppress(ReadError):
        tally = Tally()
        tally.add_file(list(known.read(place, Counter())), Counter())
        for part in ON_TOKENS if tally.steps else ():
            part.check(tally)
    with contextlib.suppress(ReadError):
        formats.find(path)


@pytest.mark.parametrize("name", ["prime-rl token export", "NeMo-RL train data", "slime train data"])
@given(changes=edits)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutated_samples(name: str, changes: list[Edit], tmp_path: Path, samples: dict[str, bytes]) -> None:
    read_all(name, tmp_path, mutated(samples[name], changes))


@pytest.mark.parametrize("version", ["torch", "both", "numpy"])
@given(changes=edits)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutated_pickles(version: str, changes: list[Edit], tmp_path: Path, samples: dict[str, bytes]) -> None:
    read_all(f"SkyRL training input {version}", tmp_path, mutated(samples[f"SkyRL training input {version}"], changes))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "start", [b"", b'{"schema_version":1,"export_step":0,', b"PK\x03\x04rollout_data", b"\x80\x04"]
)
@given(content=st.binary(max_size=300))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes(name: str, start: bytes, content: bytes, tmp_path: Path) -> None:
    read_all(name, tmp_path, start + content)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3),
)


@pytest.mark.parametrize("name", ["prime-rl token export", "NeMo-RL train data"])
@given(values=st.lists(json_values, min_size=7, max_size=7))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_under_any_key(name: str, values: list[object], tmp_path: Path) -> None:
    keys = {
        "prime-rl token export": "step export_step token_ids loss_mask inference_logprobs trainer_logprobs rewards",
        "NeMo-RL train data": "input_lengths token_ids token_loss_mask generation_logprobs prev_logprobs rewards",
    }[name].split()
    record = {"schema_version": 1, **dict(zip(keys, values, strict=False))}
    read_all(name, tmp_path, json.dumps(record).encode())
