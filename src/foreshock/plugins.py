"""Plug-ins: rules come from Foreshock itself, from installed packages and from files, all through one hook.

A package names a module, or any object, in its entry point group ``foreshock``; that object implements
:meth:`Hooks.foreshock_rules`, marked with :data:`hookimpl`. See docs/plugins.md.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pluggy

from foreshock.errors import RuleError
from foreshock.rules import BUILT_IN
from foreshock.rules.declared import is_identifier, read_rules
from foreshock.rules.finding import SEVERITIES, CannotJudge, RuleResult
from foreshock.run import Run

logger = logging.getLogger("foreshock")

NAME = "foreshock"
"""Of the plug-in manager, of the group of entry points, and of the plug-in that holds the built-in rules."""

FAILED = "rules that failed"
"""What such rules are counted as in ``Diagnosis.skipped``."""

hookspec = pluggy.HookspecMarker(NAME)
hookimpl = pluggy.HookimplMarker(NAME)


class Rule(Protocol):
    """What judges a run: a module or any other object with these, and a docstring in the sections of docs/plugins.md.

    ``SEVERITIES`` and ``NEEDS`` are optional: the severities that its findings may have, and the keys or records that
    it reads, for ``foreshock rules``.
    """

    ID: str
    """Lower-case words joined by hyphens, unlike that of every other rule."""

    def check(self, run: Run, /) -> RuleResult:
        """Judge a run. It must not change the run, and says in ``cannot_judge`` what it lacks."""


class Hooks:
    """The hooks that a plug-in may implement."""

    @staticmethod
    @hookspec
    def foreshock_rules() -> Iterable[Rule]:  # type: ignore[empty-body]
        """Return the rules of this plug-in, in the order in which to show their findings."""


class _BuiltIn:
    @staticmethod
    @hookimpl
    def foreshock_rules() -> Iterable[Rule]:
        return BUILT_IN


@dataclass
class _Broken:
    """Broken plug-in: its rules cannot be loaded, so that its silence is not health."""

    ID: str
    reason: str

    def check(self, run: Run, /) -> RuleResult:
        return RuleResult(cannot_judge=(CannotJudge(self.ID, self.reason, "Update the package, or remove it."),))


@functools.cache
def installed_rules() -> tuple[Rule, ...]:
    """Return the built-in rules, then those of installed packages.

    A package that cannot be loaded is one rule that cannot judge, so that it neither ends a diagnosis nor goes unseen.
    """
    manager = _manager()
    _register(manager, _BuiltIn, NAME)
    broken = []
    for entry in entry_points(group=NAME):
        try:
            _register(manager, entry.load(), entry.name)
        except Exception as error:  # whatever the package does when it is imported
            broken.append(_broken(entry.name, error))
    rules: tuple[Rule, ...] = ()
    for hook in manager.hook.foreshock_rules.get_hookimpls():
        try:
            rules = _unique((*rules, *_call(hook)))
        except RuleError as error:
            broken.append(_broken(hook.plugin_name, error))
    return (*rules, *broken)


def load_rules(
    extra: Iterable[Rule | str | os.PathLike[str]] = (), *, select: Sequence[str] = (), ignore: Sequence[str] = ()
) -> tuple[Rule, ...]:
    """Return the installed rules and the extra ones, as far as they are chosen.

    ``extra``: rules, or files of rules, ``.toml`` or ``.py``. ``select``: identifiers of the only rules to return, all
    when empty; ``ignore``: identifiers of rules to leave out.

    Raises:
        RuleError: a file or a rule cannot be used, or there is no rule of that name.
    """
    given = [rule for each in extra for rule in _rules_of(each)]
    rules = _unique((*installed_rules(), *given))
    chosen = {find_rule(rules, name).ID for name in select} or {rule.ID for rule in rules}
    chosen -= {find_rule(rules, name).ID for name in ignore}
    return tuple(rule for rule in rules if rule.ID in chosen)


def find_rule(rules: Iterable[Rule], name: str) -> Rule:
    """Return the rule of that identifier.

    Raises:
        RuleError: there is none; the message names the ones that are spelled alike.
    """
    known = {rule.ID: rule for rule in rules}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    meant = f"Did you mean {' or '.join(near)}?" if near else "foreshock rules lists them all."
    raise RuleError(f"There is no rule {name!r}. {meant}")


def run_rule(rule: Rule, run: Run) -> tuple[RuleResult, bool]:
    """Return what a rule says of a run, and whether it failed; a rule that fails says that it cannot judge."""
    try:
        result = rule.check(run)
        problem = _problem_of(result)
    except Exception as error:  # a user's rule may fail in any way, and the others still judge
        logger.debug("The rule %s failed", rule.ID, exc_info=True)
        problem = f"{type(error).__name__}: {error}"
    if not problem:
        return result, False
    gap = CannotJudge(rule.ID, f"The rule itself failed ({problem}).", "Report it to those who wrote the rule.")
    return RuleResult(cannot_judge=(gap,)), True


def _problem_of(result: Any) -> str:
    if not isinstance(result, RuleResult):
        return f"check returned a {type(result).__name__}, not a RuleResult"
    for finding in result.findings:
        if finding.severity not in SEVERITIES:
            return f"got the severity {finding.severity!r}, expected one of {', '.join(SEVERITIES)}"
        if not isinstance(finding.summary, str) or [isinstance(step, Integral) for step in finding.steps] != [True] * 2:
            return f"got summary {finding.summary!r} and steps {finding.steps!r}, expected text and two whole numbers"
    return ""


def _manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(NAME)
    manager.add_hookspecs(Hooks)
    return manager


def _register(manager: pluggy.PluginManager, plugin: object, name: str) -> None:
    """Register a plug-in whose hooks are all known and take what they are given."""
    manager.register(plugin, name)
    try:
        manager.check_pending()
    except pluggy.PluginValidationError:
        manager.unregister(plugin)
        raise


def _call(hook: pluggy.HookImpl) -> list[Rule]:
    """Return the rules of one plug-in.

    Raises:
        RuleError: the hook fails, or one of its rules lacks something.
    """
    where = f"plug-in {hook.plugin_name}"
    try:
        rules: list[Any] = list(hook.function())  # type: ignore[call-overload]
    except Exception as error:  # whatever the plug-in does in its hook
        raise RuleError(f"{where}: foreshock_rules failed ({type(error).__name__}: {error}).") from error
    return [_checked(rule, where) for rule in rules]


def _broken(name: str, error: Exception) -> _Broken:
    logger.debug("The plug-in %s cannot be loaded", name, exc_info=error)
    return _Broken(f"plug-in-{name}", f"The plug-in {name} cannot be loaded ({type(error).__name__}: {error}).")


def _rules_of(given: Rule | str | os.PathLike[str]) -> Iterable[Rule]:
    if not isinstance(given, (str, os.PathLike)):
        return (_checked(given, "rules"),)
    path = Path(given)
    if path.suffix == ".toml":
        return read_rules(path)
    if path.suffix == ".py":
        return _rules_of_module(path)
    raise RuleError(f"{path} cannot be used as rules. Expected a file that ends in .toml or .py.")


def _rules_of_module(path: Path) -> Iterable[Rule]:
    """Import a file and return its rules: those of its hook, or the module itself where it is a rule."""
    module = _import(path)
    manager = _manager()
    try:
        _register(manager, module, path.name)
    except pluggy.PluginValidationError as error:
        raise RuleError(f"{path}: {error}") from error
    hooks = manager.hook.foreshock_rules.get_hookimpls()
    return [rule for hook in hooks for rule in _call(hook)] if hooks else (_checked(module, str(path)),)


def _import(path: Path) -> ModuleType:
    name = f"foreshock_rules_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RuleError(f"{path} cannot be imported. Expected a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever stands in the file
        del sys.modules[name]
        raise RuleError(f"{path} cannot be imported ({type(error).__name__}: {error}).") from error
    return module


def _checked(rule: Any, where: str) -> Rule:
    """Return a rule that has what a rule needs.

    Raises:
        RuleError: it lacks something.
    """
    name = getattr(rule, "ID", None)
    if not isinstance(name, str) or not is_identifier(name):
        raise RuleError(f"{where}: got a rule with ID {name!r}, expected lower-case words joined by hyphens.")
    if not (inspect.getdoc(rule) or "").strip():
        raise RuleError(f"{where}: the rule {name} has no docstring, from which its page is made.")
    check = getattr(rule, "check", None)
    if not callable(check) or not _takes_a_run(check):
        raise RuleError(f"{where}: the rule {name} has no check(run), expected a function of one argument.")
    checked: Rule = rule
    return checked


def _takes_a_run(check: Any) -> bool:
    try:
        inspect.signature(check).bind(None)
    except (TypeError, ValueError):
        return False
    return True


def _unique(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    seen = set()
    for rule in rules:
        if rule.ID in seen:
            raise RuleError(f"Two rules are called {rule.ID!r}. Give one of them another ID.")
        seen.add(rule.ID)
    return tuple(rules)
