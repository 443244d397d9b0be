"""One vocabulary for the keys of all logs: that of TRL, since rules and views speak it.

A key that no entry names keeps its own name. Where one row holds two keys with the same meaning, the one that stands
first in :data:`ALIASES` takes the common name, and the other keeps its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

STEP_KEYS = (
    "step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "global_step/max_steps",
    "progress/step",
    "progress/batch",
    "training_step",
    "train_step",
    "iteration",
    "iter",
    "_step",
)
"""Keys that count optimizer steps, best first, in lower case. W&B's ``_step`` is last: it counts calls of ``log``."""

ALIASES: Mapping[str, tuple[str, ...]] = {
    "loss": ("actor/pg_loss", "policy/policy_loss", "policy/loss", "optim/loss", "loss/mean", "train_loss"),
    "reward": (
        "critic/score/mean",
        "critic/rewards/mean",
        "reward/mean",
        "reward/total",
        "env/all/reward/total",
        "reward/avg_raw_reward",
        "rollout/raw_reward",
        "objective/scores",
        "mean_reward",
        "reward_mean",
    ),
    "kl": ("actor/kl_loss", "policy/policy_kl", "kl_policy_base", "kl_mean", "kl/mean", "objective/kl", "kl_loss"),
    "entropy": (
        "actor/entropy",
        "actor/entropy_loss",
        "policy/entropy",
        "policy/policy_entropy",
        "optim/entropy",
        "entropy/mean",
        "entropy/all/mean",
        "objective/entropy",
    ),
    "grad_norm": ("actor/grad_norm", "optim/grad_norm", "policy/grad_norm", "policy/raw_grad_norm"),
    "learning_rate": ("lr", "actor/lr", "optim/lr", "policy/lr", "actor_lr"),
    "completions/mean_length": (
        "completion_length",
        "response_length/mean",
        "response_length",
        "generate/avg_num_tokens",
        "rollout/response_len/mean",
    ),
    "completions/max_length": ("response_length/max", "rollout/response_len/max"),
    "completions/min_length": ("response_length/min", "rollout/response_len/min"),
    "completions/clipped_ratio": ("response_length/clip_ratio", "rollout/truncated_ratio"),
    "clip_ratio/region_mean": ("clip_ratio", "actor/pg_clipfrac", "policy/ppo_clip_ratio", "pg_clipfrac"),
    "frac_reward_zero_std": ("frac_zero_reward_std",),
    "epoch": ("training/epoch", "progress/epoch"),
    "step_time": ("timing_s/step", "perf/time_per_step", "perf/step_s", "time/total"),
    "throughput": ("perf/throughput", "perf/forwarded_tok_s_wall_clock"),
    "sampling/sampling_logp_difference/mean": (
        "train_rollout_logprob_abs_diff",
        "rollout/train_rollout_logprob_abs_diff",
        "policy/rollout_train_logprobs_abs_diff_mean",
    ),
    "sampling/importance_sampling_ratio/mean": ("rollout_corr/rollout_is_mean", "sampling_importance_ratio", "tis"),
    "mismatch_kl": (
        "mismatch_kl/all/mean",
        "mismatch_kl/mean",
        "rollout_corr/k3_kl",
        "rollout_correction/k3_kl",
        "gen_kl_error",
        "vllm_kl",
    ),
    "rollout_corr/kl": ("rollout_correction/kl",),
    "rollout_corr/rollout_is_eff_sample_size": ("rollout_correction/ess",),
}
"""Common name → other names, best first."""

_RANK = {
    name: (canonical, rank)
    for canonical, others in ALIASES.items()
    for rank, name in enumerate((canonical, *others))
}  # fmt: skip


def is_step(key: str) -> bool:
    """Say whether a key may count steps."""
    return key.lower() in STEP_KEYS


def is_measurement(key: str) -> bool:
    """Say whether a key is neither a step nor one of the times that W&B adds to each row."""
    return not is_step(key) and key not in ("_timestamp", "_runtime")


def is_evaluation(keys: Collection[str]) -> bool:
    """Say whether a row of these keys comes from an evaluation, so that it counts no training step."""
    named = [key for key in keys if not is_step(key) and _meaning(key)[0] != "epoch"]
    return bool(named) and all(_meaning(key)[0].startswith("eval_") for key in named)


def canonical_names(keys: Mapping[str, Collection[int]]) -> dict[str, str]:
    """Return original → common name for the keys of one log.

    ``keys`` holds for each key the kinds of row in which it appears. Keys that never share a row may share a name: a
    log whose keys were renamed between two versions is one series.
    """
    prefix = _only_run_prefix(keys)
    ranked = sorted((_meaning(key.removeprefix(prefix))[1], position, key) for position, key in enumerate(keys))
    taken: dict[str, set[int]] = {}
    names = {}
    for _, _, key in ranked:
        name = _meaning(key.removeprefix(prefix))[0]
        if taken.get(name, set()).intersection(keys[key]):
            name = key
        taken.setdefault(name, set()).update(keys[key])
        names[key] = name
    return {key: names[key] for key in keys}


def _meaning(key: str) -> tuple[str, int]:
    """Return the common name of a key and its rank among the names of that meaning."""
    if key.lower() in _RANK:
        return _RANK[key.lower()]
    if key.startswith("train/"):  # the prefix under which the Trainer's keys reach W&B and TensorBoard
        name, rank = _meaning(key.removeprefix("train/"))
        return name, rank + 1
    if key.startswith("eval/"):
        return "eval_" + key.removeprefix("eval/"), 1
    return key, 0


def _only_run_prefix(keys: Collection[str]) -> str:
    """Return the ``run name - `` that an exported chart of one run puts before its keys; empty for several runs."""
    prefixes = {key.rpartition(" - ")[0] for key in keys if " - " in key}
    return f"{prefixes.pop()} - " if len(prefixes) == 1 else ""
