"""What speaks for and against each cause: the one table that the ranking reads.

A finding always speaks for the cause that its rule names. The table adds which other findings fit a cause too, and
which states of series and of tails speak for it or against it. All of it is judgement, not measurement; each line is
there because the field's reports of failed runs tell that pair of causes apart by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foreshock.causes.signs import Sign, all_finite, all_flat, named, samples_itself, tails, went
from foreshock.rules import cause_names as names
from foreshock.rules import (
    diversity,
    entropy_change,
    environment_fault,
    gradient_tail,
    kl_runaway,
    length_at_cap,
    length_change,
    mismatch,
    mismatch_slices,
    non_finite,
    reward_hacking,
    reward_length,
    tail_growth,
    tool_failures,
    tool_use,
    zero_signal,
)
from foreshock.rules.statements import POLICY_METRICS

ENGINE_RULES = (mismatch.ID, mismatch_slices.ID)


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs of one cause.

    ``fits``: rules whose findings fit this cause although they name another. ``rivals``: the causes that look most
    like it, the likeliest first; the first that the run does not speak against is what it is to be separated from when
    nothing else was found, and those that the run does speak against are said to be excluded. ``rules_out``: signs
    against it that make it impossible, so that it is nobody's rival.
    """

    fits: tuple[str, ...]
    speaks_for: tuple[Sign, ...]
    against: tuple[Sign, ...]
    rivals: tuple[str, ...]
    rules_out: tuple[Sign, ...] = ()


TABLE: Mapping[str, Signs] = {
    names.SUPPORT_MISMATCH: Signs(
        fits=(),
        speaks_for=(
            tails("flat", "up"),
            named(names.HIDDEN, "No aggregate had moved when the tail grew: a few tokens, not the whole policy."),
        ),
        against=(
            tails("up", "", so="more than the contexts after tool results have changed"),
            tails("", "flat", so="nothing has stretched there"),
        ),
        rivals=(names.ENGINE_MISMATCH, names.OPTIMISER, names.REWARD_HACKING, names.ENTROPY_COLLAPSE),
    ),
    names.ENGINE_MISMATCH: Signs(
        fits=(tail_growth.ID,),
        speaks_for=tuple(went(key, "up", unless=ENGINE_RULES) for key in mismatch.LEVELS),
        against=tuple(
            went(key, "flat", so="sampler and trainer do not drift apart", unless=ENGINE_RULES)
            for key in mismatch.LEVELS
        ),
        rivals=(names.OPTIMISER, names.NUMERICS),
        rules_out=(samples_itself,),
    ),
    names.OPTIMISER: Signs(
        fits=(non_finite.ID,),
        speaks_for=(
            tails("up", "up", so="the whole policy has moved, not one kind of context"),
            went("grad_norm", "up", unless=(gradient_tail.ID,)),
            went("kl", "up", unless=(kl_runaway.ID, tail_growth.ID)),  # a tail that grows alone moves the mean too
        ),
        against=(
            tails("flat", "", so="not the optimiser, which would move both slices"),
            went("grad_norm", "flat", so="the updates have kept their size"),
        ),
        rivals=(names.ENGINE_MISMATCH, names.REWARD_HACKING),
    ),
    names.ENTROPY_COLLAPSE: Signs(
        fits=(diversity.ID,),
        speaks_for=(
            went("entropy", "down", unless=(entropy_change.ID,)),
            went("frac_reward_zero_std", "up", unless=(zero_signal.ID,)),
        ),
        against=(went("entropy", "flat"), went("entropy", "up")),
        rivals=(names.REWARD_HACKING, names.ZERO_SIGNAL),
    ),
    names.REWARD_HACKING: Signs(
        fits=(entropy_change.ID,),
        speaks_for=(
            went("reward", "up", so="something is rewarded", unless=(reward_hacking.ID,)),
            went(
                "completions/mean_length",
                "up",
                so="a reward is often bought with length",
                unless=(reward_length.ID, length_change.ID),
            ),
        ),
        against=(all_flat("reward", "entropy", so="nothing has been gained, and the policy has not narrowed"),),
        rivals=(names.ENTROPY_COLLAPSE, names.LENGTH_COLLAPSE),
    ),
    names.ZERO_SIGNAL: Signs(
        fits=(length_at_cap.ID,),
        speaks_for=(
            went("reward_std", "down"),
            went("grad_norm", "down", so="equal rewards give no gradient"),
        ),
        against=(
            went("frac_reward_zero_std", "flat", so="groups still differ in their rewards", below=0.5),
            went("frac_reward_zero_std", "down", so="groups still differ in their rewards", below=0.5),
        ),
        rivals=(names.LENGTH_COLLAPSE, names.ENTROPY_COLLAPSE),
    ),
    names.LENGTH_COLLAPSE: Signs(
        fits=(reward_length.ID,),
        speaks_for=(
            went("completions/mean_length", "up", unless=(length_change.ID,)),
            went("completions/mean_length", "down", unless=(length_change.ID,)),
            went("completions/clipped_ratio", "up", unless=(length_at_cap.ID,)),
        ),
        against=(went("completions/clipped_ratio", "flat", so="few completions are cut off", below=0.5),),
        rivals=(names.REWARD_HACKING, names.ZERO_SIGNAL),
    ),
    names.TOOL_USE_COLLAPSE: Signs(
        fits=(tool_failures.ID,),
        speaks_for=(went("tools/call_frequency", "down", unless=(tool_use.ID,)),),
        against=(
            went("tools/call_frequency", "flat", so="the policy still calls its tools"),
            went("tools/call_frequency", "up", so="the policy still calls its tools"),
            all_flat(*POLICY_METRICS, so="a policy that forgets its tools moves these"),
        ),
        rivals=(names.ENVIRONMENT, names.LENGTH_COLLAPSE),
    ),
    names.ENVIRONMENT: Signs(
        fits=(tool_use.ID,),
        speaks_for=(
            all_flat(
                *POLICY_METRICS,
                so="the policy is what it was, so look at what it acts on",
                unless=(environment_fault.ID,),
            ),
            went("tools/failure_frequency", "up", unless=(tool_failures.ID,)),
        ),
        against=(went("tools/failure_frequency", "flat", so="tools work as before", below=0.5),),
        rivals=(names.TOOL_USE_COLLAPSE, names.ENGINE_MISMATCH),
    ),
    names.NUMERICS: Signs(
        fits=(),
        speaks_for=(),
        against=(all_finite,),
        rivals=(names.OPTIMISER, names.ENGINE_MISMATCH),
    ),
}
