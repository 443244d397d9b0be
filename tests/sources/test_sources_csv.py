from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foreshock.errors import ReadError
from foreshock.sources import csv_table, open_run

Written = Callable[..., Path]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_with_a_header(written: Written, delimiter: str) -> None:
    content = "step,loss,actor/entropy,note\n1,0.5,2.0,a\n2,,nan,b\n3,inf,1.5,\n".replace(",", delimiter)
    run = open_run(written(content))
    assert run.identity["source"]["format"] == "CSV"
    assert run.series["loss"].steps.tolist() == [1, 3]
    assert run.series["loss"].values.tolist() == [0.5, math.inf]
    assert np.isnan(run.series["entropy"].values[1])
    assert run.series["entropy"].steps.tolist() == [1, 2, 3]
    assert run.skipped == {"values that are not numbers": 2, "empty values (null)": 2}


def test_an_exported_chart(written: Written) -> None:
    content = '"Step","my run - train/loss","my run - train/loss__MIN"\n"10","0.5","0.4"\n"20","0.3","0.2"\n'
    run = open_run(written(content))
    assert run.series["loss"].steps.tolist() == [10, 20]
    assert run.series["loss__MIN"].values.tolist() == [0.4, 0.2]
    assert run.identity["source"]["keys"]["my run - train/loss"] == "loss"


def test_rows_of_training_and_evaluation_that_share_steps(written: Written) -> None:
    run = open_run(written("epoch,step,train_loss,val_loss\n0,5,1.0,\n0,5,,2.0\n1,9,0.5,\n"))
    assert run.series["loss"].steps.tolist() == [5, 9]
    assert run.series["val_loss"].steps.tolist() == [5]


def test_a_quoted_delimiter_a_torn_line_and_a_second_header(written: Written) -> None:
    content = '# written by hand\nstep,loss,"a, b"\n1,0.5,7\n2,0.\n3,0.3,"8"\nstep,loss,lr\n4,0.2,1e-5\n'
    run = open_run(written(content))
    assert run.series["loss"].steps.tolist() == [1, 3, 4]
    assert run.series["a, b"].values.tolist() == [7, 8]
    assert run.series["learning_rate"].steps.tolist() == [4]
    assert run.skipped == {"torn or damaged lines": 1}


def test_a_header_alone(written: Written) -> None:
    with pytest.raises(ReadError, match="no training log was found"):
        open_run(written("step,loss,kl\n"))
    with pytest.raises(ReadError, match="no row with a number below it"):
        csv_table.read(written("step,loss,kl\n"))


def test_numbers_alone_name_no_columns(written: Written) -> None:
    with pytest.raises(ReadError, match="does not start with a line that names columns"):
        csv_table.read(written("1,2,3\n4,5,6\n"))
