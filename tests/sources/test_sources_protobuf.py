from __future__ import annotations

import contextlib

import pytest
from google.protobuf import wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from foreshock.sources import protobuf


@given(value=st.integers(-(2**63), 2**63 - 1).filter(bool))
def test_signed_integers_of_the_real_library(value: int) -> None:
    ((number, kind, integer, _),) = protobuf.fields(wrappers_pb2.Int64Value(value=value).SerializeToString())
    assert (number, kind, protobuf.signed(integer)) == (1, protobuf.VARINT, value)


@given(value=st.binary(min_size=1, max_size=300))
def test_bytes_of_the_real_library(value: bytes) -> None:
    message = wrappers_pb2.BytesValue(value=value).SerializeToString()
    assert list(protobuf.fields(message)) == [(1, protobuf.LENGTH, 0, value)]
    with pytest.raises(ValueError, match=r"beyond the end|does not end"):
        list(protobuf.fields(message[:-1]))


def test_fixed_fields() -> None:
    message = (
        wrappers_pb2.DoubleValue(value=0.5).SerializeToString() + wrappers_pb2.FloatValue(value=2).SerializeToString()
    )
    assert [(kind, data) for _, kind, _, data in protobuf.fields(message)] == [
        (protobuf.FIXED64, b"\0\0\0\0\0\0\xe0\x3f"),
        (protobuf.FIXED32, b"\0\0\0\x40"),
    ]


@given(message=st.binary(max_size=60))
def test_random_bytes_raise_value_errors_alone(message: bytes) -> None:
    with contextlib.suppress(ValueError):
        list(protobuf.fields(message))
