from __future__ import annotations

import io

import pytest
from rich.console import Console

from foreshock.views.rows import RowsTable

NUMBERS = {f"number of {name}": 10_000.5 + place for place, name in enumerate("abcdefgh")}


def printed(rows, width):
    page = io.StringIO()
    Console(file=page, width=width).print(RowsTable(rows))
    return page.getvalue()


@pytest.mark.parametrize("width", [120, 80, 60, 40])
def test_no_number_is_cut_in_two_and_none_is_lost(width):
    text = printed([{"segment": "early", "slice": "text_only", **NUMBERS}], width)
    for value in NUMBERS.values():
        assert f"{value:,.0f}" in text
    assert max(map(len, text.splitlines())) <= width


def test_what_fits_is_one_table_and_the_rest_repeats_the_columns_of_text():
    rows = [{"segment": "early", **NUMBERS}]
    assert printed(rows, 120).count("early") == 1
    assert printed(rows, 40).count("early") > 1
