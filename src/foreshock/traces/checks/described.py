"""What is written of each check over traces, for ``foreshock explain``, ``foreshock rules`` and docs/rules."""

from __future__ import annotations

from foreshock.traces.checks import answers, outcomes, pay, sizes, tools
from foreshock.traces.checks.common import Share

PAGE = """{title}

What: {what}
Why it matters: {why}
Known problems: {problems}
Example: {example}
Options: none.
References: {references}
"""

COCHRAN = "Cochran, Sampling Techniques, 1977, section 6.3: standard errors of ratios over clusters of attempts."


class Description:
    """A check over traces as the pages of rules are made of it: identifier, what it needs, severities, docstring."""

    def __init__(
        self, rule: str, severities: tuple[str, ...], needs: str, *, example: str = "none.", **parts: str
    ) -> None:
        self.ID = rule
        self.SEVERITIES = severities
        self.NEEDS = needs
        self.__doc__ = PAGE.format(references=COCHRAN, example=example, **parts)


def _share(share: Share, needs: str, title: str, why: str, problems: str) -> Description:
    warning, critical = (f"{level:.0%}" for level in share.levels)
    what = (
        f"N% {share.words}. A warning from {warning}, critical from {critical}; a warning too when N has risen by "
        f"{100 * share.rise:.0f} points from the first to the last third of the steps (heuristics)."
    )
    parts = {"title": title, "what": what, "why": why, "problems": problems}
    return Description(share.rule, ("warning", "critical"), needs, example=f'"42% {share.words}."', **parts)


_TOOL_FAILURES, _PARSE_ERRORS, _LOOPS, _REPEATED = tools.SHARES
_EMPTY, _VOID, _REPETITION = answers.SHARES

CHECKS = (
    Description(
        outcomes.SUCCESS,
        ("warning", "critical"),
        "success labels, or rewards",
        title="Success: hardly any episode succeeds, or ever fewer do.",
        what=f"the success rate, or the mean reward without labels. At most {outcomes.NONE_SUCCEED:.0%} is a warning, "
        f"and so is a fall by {100 * outcomes.FALL:.0f} points from the first to the last third of the steps; a fall "
        "by half is critical. It says whether length and calls of the episodes moved with it (heuristics).",
        why="without success there is nothing to learn from; a fall beside still behaviour comes from the environment.",
        problems="a change of prompts looks like a change of skill. Where every reward is 0 or 1, 1 counts as success.",
    ),
    Description(
        outcomes.TERMINATION,
        ("warning", "critical"),
        "why each episode ended",
        title="Termination: episodes are cut off instead of ending by themselves.",
        what="the share of the episodes by what ended them, a warning and critical from: "
        + "; ".join(f"{cause} {low:.0%} and {high:.0%}" for cause, (low, high) in outcomes.ENDINGS.items())
        + " (heuristics).",
        why="a cut-off episode is no failure of the policy, and training on it as one teaches the limit.",
        problems="it needs the causes. The completions that TRL logs hold none.",
    ),
    Description(
        pay.CAPPED,
        ("warning",),
        "rewards, and lengths or why each episode ended",
        title="Capped reward: the episodes at the length limit are those without reward.",
        what=f"{pay.CAPPED_SHARE:.0%} of the episodes or more end at the limit, and their mean reward lies below that "
        "of the others by more than chance (heuristic).",
        why="the policy is then taught by the limit and not by the task.",
        problems="a limit that is not recorded is guessed from the length at which most long episodes end.",
    ),
    _share(
        _TOOL_FAILURES,
        "answers of tools",
        "Tool failures in traces: answers of tools are errors.",
        "an agent whose tools do not work learns to do without them.",
        "an error is known by a field of the answer or by how it begins. Failure told in other words passes.",
    ),
    _share(
        _PARSE_ERRORS,
        "tool calls",
        "Parse errors: calls of tools cannot be parsed.",
        "a call that is not understood is a turn without effect, and often the wrong template.",
        "calls that the writer of the traces had dropped are not seen.",
    ),
    _share(
        _LOOPS,
        "tool calls",
        "Loops: an agent repeats the same calls with the same answers.",
        "a loop spends the budget of an episode and brings nothing new.",
        "one to four calls that repeat are found, and only where arguments and answers are equal to the letter.",
    ),
    _share(
        _REPEATED,
        "tool calls",
        "Repeated arguments: calls repeat an earlier call of their episode.",
        "the policy does not use what it was told, or it has been cut out of the context.",
        "polling a tool whose answer changes is counted too.",
    ),
    Description(
        "trace-tool-use",
        ("warning",),
        "steps, and tool calls",
        title="Tool use: calls per episode have fallen.",
        what=f"the calls per episode in the last third of the steps are at most {tools.FALLEN:.0%} of those in the "
        "first (heuristic).",
        why="a policy that stops calling its tools rarely starts again by itself.",
        problems="prompts that need fewer calls look the same.",
    ),
    _share(
        _EMPTY,
        "",
        "Empty answers: episodes end with neither words nor a call.",
        "a server that answers nothing, or a stop string before the first word, trains the policy on silence.",
        "an answer that was dropped when the traces were written looks empty.",
    ),
    _share(
        _VOID,
        "episodes of more than one turn",
        "Void turns in traces: turns before the last hold neither words nor a call.",
        "they are trained like any other turn, and what the environment answers to one leads the episode nowhere.",
        "turns that hold only what a parser drops look void.",
    ),
    _share(
        _REPETITION,
        "",
        "Repetition: messages end in a repetition of themselves.",
        "degenerate text is a sign of too large updates, or of a reward that pays for length.",
        "the last 2,000 characters count as repetition when they shrink eightfold; long tables can.",
    ),
    Description(
        "trace-same-beginning",
        ("warning", "critical"),
        "answers of 80 characters or more, over 10 prompts or more",
        title="Same beginning: answers to different prompts begin alike.",
        what="the share of the answers that begin with the same 80 characters: a warning from 50%, critical from 90% "
        "(heuristics).",
        why="a policy with one answer left has collapsed, even where the reward still pays.",
        problems="a template that asks for a fixed beginning does the same.",
    ),
    _share(
        answers.REFUSALS,
        "answers in English",
        "Refusals: answers begin as a refusal does.",
        "where a wrong answer costs more than none, the policy learns to refuse.",
        "its templates are English; other languages are not judged.",
    ),
    Description(
        pay.VERBOSITY,
        ("warning",),
        "rewards, and several attempts at a prompt",
        title="Verbosity: among attempts at one prompt the longer ones are paid better.",
        what=f"the correlation of length with reward among attempts at one prompt is {pay.PAID_FOR_LENGTH} or more "
        "(heuristic).",
        why="what is paid for grows: episodes become longer without becoming better.",
        problems="a task that needs long answers pays for them rightly.",
    ),
    *[
        Description(
            rule,
            ("note", "warning"),
            needs,
            title=f"{title}: single episodes take far more {needs} than the others.",
            what=f"an episode over {sizes.TIMES:.0f} times the median, and {sizes.DEVIATIONS:.0f} robust deviations "
            f"above it on a logarithmic scale. A note; a warning when they take {sizes.HEAVY:.0%} of the total "
            "(heuristics).",
            why="a few episodes without an end hold up a step and fill its batch.",
            problems="a few prompts that are much harder look the same.",
        )
        for rule, title, needs in (
            ("trace-token-runaway", "Token runaway", "tokens"),
            ("trace-turn-runaway", "Turn runaway", "turns"),
            ("trace-cost-outliers", "Cost outliers", "cost"),
        )
    ],
    Description(
        "trace-growth",
        ("note", "warning"),
        "steps",
        title="Growth: episodes become longer.",
        what=f"the length in the last third of the steps is {sizes.GROWTH} times that in the first or more. It is a "
        "note while success rises with it (heuristic).",
        why="growth without more success runs into the limit.",
        problems="harder prompts in a curriculum look the same.",
    ),
)
"""Every check over traces, in the order in which they are listed."""
