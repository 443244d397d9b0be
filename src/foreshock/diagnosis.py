"""From a run to a diagnosis: findings, what could not be judged, and a verdict."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from foreshock import audit
from foreshock.causes import Cause, weigh_causes
from foreshock.detect.series_change import Change
from foreshock.plugins import FAILED, Rule, installed_rules, load_rules, run_rule
from foreshock.rules.aggregates import aggregate_changes
from foreshock.rules.finding import SEVERITIES, CannotJudge, Finding, RuleResult
from foreshock.run import Run
from foreshock.sources import dumps, find_runs, open_run
from foreshock.traces import Traces, check, is_traces, read_traces

VERDICTS = ("healthy", "cannot_judge", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What Foreshock says of a run.

    ``verdict``: the highest severity found; without warnings ``cannot_judge`` when a rule lacked what it needs, and
    ``healthy`` only when none did. ``aggregates``: loss, reward, entropy and mean KL, as far as logged.
    ``causes``: possible causes, likeliest first. ``excluded``: causes that the run speaks against, with what does.
    ``judged``: what rules looked at and found in order. ``not_asked``: installed rules that were left out, of which the
    verdict says nothing.
    ``run``: what was judged, for views that draw it; None for traces of an agent.
    """

    path: Path | None
    verdict: str
    findings: tuple[Finding, ...] = ()
    cannot_judge: tuple[CannotJudge, ...] = ()
    aggregates: dict[str, Change] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    causes: tuple[Cause, ...] = ()
    excluded: tuple[Cause, ...] = ()
    judged: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()
    run: Run | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as plain values, ready for JSON."""
        return {
            "path": None if self.path is None else str(self.path),
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
            "causes": [cause.to_dict() for cause in self.causes],
            "excluded": [{"name": cause.name, "evidence_against": cause.evidence_against} for cause in self.excluded],
            "judged": list(self.judged),
            "not_asked": list(self.not_asked),
            "cannot_judge": [str(reason) for reason in self.cannot_judge],
            "aggregates": {name: asdict(change) for name, change in self.aggregates.items()},
            "skipped": dict(self.skipped),
        }


def diagnose(
    path: str | os.PathLike[str],
    *,
    rules: Iterable[Rule | str | os.PathLike[str]] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Diagnosis:
    """Diagnose what is at a path: a run directory, a log that :mod:`foreshock.sources` reads, or traces of an agent.

    ``rules``: rules beside the built-in and installed ones, or files of rules, see docs/plugins.md. ``select`` and
    ``ignore``: identifiers of the only rules to ask, and of rules not to ask. Traces have checks of their own, to which
    these do not apply.

    Raises:
        ReadError: nothing there can be read as a run or as traces.
        RuleError: a rule cannot be used, or there is none of that name.
        MissingExtra: it is of a format that needs an optional package.
    """
    return diagnose_by(path, load_rules(rules, select=select, ignore=ignore))


def places_of(path: str | os.PathLike[str]) -> list[Path]:
    """Return the runs that lie at a path, each as what :func:`diagnose` takes; the path itself where there is none."""
    return [Path(path)] if is_traces(path) else find_runs(path) or [Path(path)]


def diagnose_by(path: str | os.PathLike[str], rules: Sequence[Rule]) -> Diagnosis:
    """Diagnose what is at a path, a run by these rules only; raises what :func:`diagnose` raises for the path."""
    return diagnose_traces(read_traces(path)) if is_traces(path) else diagnose_run(open_run(path), rules)


def diagnose_traces(traces: Traces) -> Diagnosis:
    """Diagnose traces of an agent that are in memory."""
    return _concluded(Run(path=traces.path, skipped=traces.skipped), [check(traces)])


def audit_rollouts(path: str | os.PathLike[str]) -> Diagnosis:
    """Judge whether what a trainer trains on is what the policy did: a token dump, or traces of an agent.

    Raises:
        ReadError: nothing there can be read as either.
        MissingExtra: it is of a format that needs an optional package.
    """
    place = Path(path)
    dump = dumps.find(place) if place.exists() else None
    if dump is None and is_traces(place):
        traces = read_traces(place)
        return _concluded(Run(path=place, skipped=traces.skipped), audit.check_traces(traces))
    run = Run(path=place)
    return _concluded(run, audit.check_dump(dump or dumps.open_dump(place), run.skipped))


def diagnose_run(run: Run, rules: Sequence[Rule] | None = None) -> Diagnosis:
    """Diagnose a run that is in memory, by all installed rules or by these.

    Only new blocks cost time on a run that was judged before. A rule that fails is counted, and the others still judge.
    """
    installed = installed_rules()
    asked = installed if rules is None else rules
    outcomes = [run_rule(rule, run) for rule in asked]
    found = _concluded(run, [result for result, _ in outcomes], sum(has_failed for _, has_failed in outcomes))
    identifiers = {rule.ID for rule in asked}
    return replace(found, not_asked=tuple(rule.ID for rule in installed if rule.ID not in identifiers), run=run)


def _concluded(run: Run, results: Sequence[RuleResult], failed: int = 0) -> Diagnosis:
    findings = [finding for result in results for finding in result.findings]
    findings.sort(key=lambda finding: -SEVERITIES.index(finding.severity))
    gaps = tuple(gap for result in results for gap in result.cannot_judge)
    causes, excluded = weigh_causes(run, findings)
    return Diagnosis(
        path=run.path,
        verdict=_verdict(findings, gaps),
        findings=tuple(findings),
        cannot_judge=gaps,
        aggregates=aggregate_changes(run),
        skipped=dict(run.skipped) | ({FAILED: failed} if failed else {}),
        causes=causes,
        excluded=excluded,
        judged=tuple(phrase for result in results for phrase in result.judged),
    )


def _verdict(findings: Sequence[Finding], gaps: Sequence[CannotJudge]) -> str:
    if findings and findings[0].severity != "note":
        return findings[0].severity
    return "cannot_judge" if gaps else "healthy"
