"""``foreshock dataset``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import check_exists, errors_shown

KINDS = ("preference", "kto", "sft", "grpo")


@click.command()
@click.argument("traces", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(KINDS), required=True, help="What the data set is for.")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="The JSONL file to write.")
@click.option("--margin", default=0.0, show_default=True, help="Rewards of a preference pair differ by more than this.")
def dataset(traces: Path, kind: str, output: Path, margin: float) -> None:
    """Make a data set of an agent's traces.

    Preference pairs, KTO labels, SFT examples or GRPO prompts, as TRL's trainers take them.
    """
    with errors_shown():
        from foreshock.traces import read_traces
        from foreshock.traces.export import write_dataset

        check_exists(traces, "a file or folder of traces")
        read = read_traces(traces)
        output.parent.mkdir(parents=True, exist_ok=True)
        rows, left_out = write_dataset(read, kind, output, margin)
        click.echo(f"{output}: {rows} rows from {len(read.episodes)} episodes")
        for reason, count in (+(left_out + read.skipped)).items():
            click.echo(f"left out  {reason}: {count}")
