"""Packs the finished runs of a sweep into a folder beside this file, and writes their labels.

python experiments/pack.py runs/reproduce .
python experiments/pack.py runs/smollm2 smollm2
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from foreshock.lab.plan import ORIGINAL
from foreshock.lab.saved import save
from foreshock.run import read_run_directory

HERE = Path(__file__).parent

LABEL = {
    "fixed": "grows", "adaptive_kl": "grows",
    "constrained": "quiet", "free_form": "quiet", "drift_aware": "quiet",
}  # fmt: skip
"""What an arm is built to do to the post-tool tail; every other arm is ``open`` and not scored."""

FIRST_DEVELOPMENT_SEED = 100


def main(sweep: Path, folder: Path) -> None:
    """Pack every finished run below `folder` and write its table of labels anew."""
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    for run_dir in sorted((sweep / "runs").iterdir()):
        if (run_dir / "run.json").is_file() and read_run_directory(run_dir).identity.get("status") == "finished":
            save(run_dir, runs / f"{run_dir.name}.tar.gz")
            if (run_dir / ORIGINAL).is_dir():
                arm, _, seed = run_dir.name.rpartition("-")
                save(run_dir / ORIGINAL, runs / f"{arm}-{ORIGINAL}-{seed}.tar.gz")
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["run", "arm", "seed", "split", "label"])
        for archive in sorted(runs.glob("*.tar.gz")):
            name = archive.name.removesuffix(".tar.gz")
            arm, _, seed = name.rpartition("-")
            split = "development" if int(seed) >= FIRST_DEVELOPMENT_SEED else "evaluation"
            table.writerow([name, arm, seed, split, LABEL.get(arm, "open")])


if __name__ == "__main__":
    main(Path(sys.argv[1]), HERE / sys.argv[2])
