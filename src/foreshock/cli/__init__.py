"""The command line: one command, one file.

Every command imports what it needs when it runs, so that ``foreshock --help`` stays fast.
"""

from __future__ import annotations

import click

import foreshock
from foreshock.cli.audit import audit
from foreshock.cli.collect import collect
from foreshock.cli.compare import compare
from foreshock.cli.dataset import dataset
from foreshock.cli.demo import demo
from foreshock.cli.diagnose import diagnose
from foreshock.cli.explain import explain
from foreshock.cli.inspect import inspect
from foreshock.cli.report import report
from foreshock.cli.reproduce import reproduce
from foreshock.cli.rules import list_rules
from foreshock.cli.watch import watch


class _InOrderOfUse(click.Group):
    """A group whose help lists the commands as they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrderOfUse, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(foreshock.__version__, prog_name="foreshock", message="%(prog)s %(version)s")
def main() -> None:
    """Early warning for agent RL: watches the tail of per-token log-ratios where tool-using agents break first."""


for command in (
    demo,
    watch,
    diagnose,
    report,
    compare,
    audit,
    dataset,
    inspect,
    collect,
    explain,
    list_rules,
    reproduce,
):
    main.add_command(command)
