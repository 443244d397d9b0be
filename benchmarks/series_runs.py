"""Simulated logs for series_rules.py: runs in which nothing is wrong, and runs in which one thing goes wrong.

A table maps a key to one value a row; ``step``, where it is there, gives the steps of the rows, else they count from 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from foreshock.rules import (
    clip_fraction,
    dead_run,
    diversity,
    entropy_change,
    environment_fault,
    gradient_tail,
    kl_runaway,
    length_at_cap,
    likelihood_displacement,
    loss_rise,
    margin_collapse,
    mismatch,
    overfitting,
    preference_chance,
    reward_concentration,
    reward_hacking,
    reward_length,
    slow_steps,
    tool_failures,
    tool_use,
    update_blocked,
    void_turns,
    zero_signal,
)

Floats = NDArray[np.float64]
Table = dict[str, Floats]
Rng = np.random.Generator

ROWS = 300
ONSET = 120
LONG_ROWS = 3_000

LEVELS = {
    "loss": (0.0, 0.02),
    "reward": (0.5, 0.06),
    "rewards/accuracy/mean": (0.4, 0.06),
    "rewards/format/mean": (0.6, 0.06),
    "reward_std": (0.3, 0.05),
    "frac_reward_zero_std": (0.3, 0.1),
    "entropy": (1.0, 0.1),
    "kl": (0.05, 0.015),
    "grad_norm": (0.5, 0.1),
    "clip_ratio/region_mean": (0.03, 0.01),
    "completions/mean_length": (300.0, 25.0),
    "completions/min_length": (80.0, 15.0),
    "completions/max_length": (600.0, 40.0),
    "completions/clipped_ratio": (0.1, 0.04),
    "tools/call_frequency": (0.8, 0.1),
    "tools/failure_frequency": (0.1, 0.05),
    "void_turns": (0.03, 0.015),
    "mismatch_kl": (0.01, 0.003),
    "sampling/sampling_logp_difference/mean": (0.03, 0.006),
    "sampling/importance_sampling_ratio/mean": (0.998, 0.004),
    "step_time": (40.0, 5.0),
}
"""Mean and standard deviation of each key on a stationary run of reinforcement learning."""

SFT_LEVELS = {"loss": (1.5, 0.12), "grad_norm": (0.8, 0.15), "mean_token_accuracy": (0.62, 0.02), "entropy": (1.4, 0.1)}

DPO_LEVELS = {
    "loss": (0.5, 0.05),
    "rewards/chosen": (0.3, 0.15),
    "rewards/rejected": (-0.5, 0.15),
    "rewards/margins": (0.8, 0.15),
    "rewards/accuracies": (0.75, 0.08),
    "logps/chosen": (-180.0, 12.0),
    "logps/rejected": (-210.0, 12.0),
    "grad_norm": (0.8, 0.15),
    "entropy": (1.4, 0.1),
}

SHARES = (
    "rewards/accuracy/mean",
    "rewards/format/mean",
    "rewards/accuracies",
    "mean_token_accuracy",
    "frac_reward_zero_std",
    "completions/clipped_ratio",
    "clip_ratio/region_mean",
    "tools/failure_frequency",
    "void_turns",
)
SIGNED = ("loss", "reward", "rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected")


def noise(rng: Rng, rho: float = 0.0, rows: int = ROWS) -> Floats:
    """AR(1) noise of standard deviation 1."""
    shocks = rng.normal(size=rows) * np.sqrt(1 - rho * rho)
    shocks[0] = rng.normal()
    for row in range(1, rows if rho else 0):
        shocks[row] += rho * shocks[row - 1]
    return shocks


def limited(table: Table) -> Table:
    """Keep shares between 0 and 1 and whatever has no sign at or above 0."""
    for key, values in table.items():
        if key in SHARES:
            table[key] = np.clip(values, 0, 1)
        elif key not in SIGNED:
            table[key] = np.maximum(values, 0.0)
    return table


def stationary(rho: float, levels: dict[str, tuple[float, float]] = LEVELS, rows: int = ROWS) -> Callable[[Rng], Table]:
    return lambda rng: limited({key: mean + sd * noise(rng, rho, rows) for key, (mean, sd) in levels.items()})


def bare(rng: Rng) -> Table:
    """White noise around zero in every key, as tools are often tried."""
    return {key: noise(rng) for key in LEVELS}


def rough(rng: Rng) -> Table:
    """A small batch: wide, skewed, autocorrelated noise; one group a step, so that each share is 0 or 1."""
    table = stationary(0.7)(rng)
    for key, spread in (("kl", 0.6), ("grad_norm", 0.8), ("entropy", 0.25), ("reward_std", 0.5), ("mismatch_kl", 0.6)):
        table[key] = LEVELS[key][0] * np.exp(spread * noise(rng, 0.7))
    for key, sd in (("reward", 0.2), ("rewards/accuracy/mean", 0.2), ("tools/call_frequency", 0.35)):
        table[key] = LEVELS[key][0] + sd * noise(rng, 0.3)
    for key, probability in (("frac_reward_zero_std", 0.6), ("completions/clipped_ratio", 0.3)):
        table[key] = (rng.random(ROWS) < probability).astype(float)
    return limited(table)


def healthy(rng: Rng, ramp: int = 1, decay: bool = False) -> Table:
    """A run that learns: time constants, sizes and autocorrelation differ from run to run."""
    rate, rho = np.minimum(np.arange(1, ROWS + 1) / ramp, 1.0), rng.uniform(0, 0.6)
    if decay:
        rate = rate * (1 + np.cos(np.pi * np.arange(ROWS) / ROWS)) / 2
    learned = 1 - np.exp(-(np.cumsum(rate) - rate[0]) / rng.uniform(30, 150))
    accuracy = rng.uniform(0.1, 0.4) + rng.uniform(0.3, 0.5) * learned
    form = 0.5 + 0.45 * (1 - np.exp(-(np.cumsum(rate) - rate[0]) / rng.uniform(10, 60)))
    spikes = np.where(rng.random(ROWS) < 0.03, rng.uniform(3, 30, ROWS), 1.0)
    length = 200 * (1 + rng.uniform(0.2, 1.5) * learned)
    table = {
        "learning_rate": 1e-5 * rate,
        "loss": 0.02 * noise(rng, rho),
        "rewards/accuracy/mean": accuracy + 0.05 * noise(rng, rho),
        "rewards/format/mean": form + 0.02 * noise(rng, rho),
        "reward_std": 0.35 - 0.15 * learned + 0.04 * noise(rng, rho),
        "frac_reward_zero_std": 0.1 + rng.uniform(0.2, 0.6) * learned + 0.08 * noise(rng, rho),
        "entropy": 1.0 - rng.uniform(0.3, 0.7) * learned + 0.05 * noise(rng, rho),
        "kl": rng.uniform(0.02, 0.5) * learned * np.exp(0.2 * noise(rng, rho)),
        "grad_norm": (0.5 - 0.2 * learned) * np.exp(0.3 * noise(rng, rho)) * spikes,
        "clip_ratio/region_mean": 0.01 + 0.004 * noise(rng, rho),
        "completions/mean_length": length + 15 * noise(rng, rho),
        "completions/min_length": 0.3 * length + 10 * noise(rng, rho),
        "completions/max_length": 2 * length + 40 * noise(rng, rho),
        "completions/clipped_ratio": 0.02 + rng.uniform(0, 0.2) * learned + 0.02 * noise(rng, rho),
        "tools/call_frequency": 0.3 + rng.uniform(0.2, 1.5) * learned + 0.08 * noise(rng, rho),
        "tools/failure_frequency": 0.4 * (1 - learned) + 0.04 * noise(rng, rho),
        "void_turns": 0.2 * (1 - learned) + 0.02 * noise(rng, rho),
        "mismatch_kl": rng.uniform(0.002, 1.0) * (1 - 0.3 * learned) * np.exp(0.2 * noise(rng, rho)),
        "sampling/sampling_logp_difference/mean": 0.03 * np.exp(0.2 * noise(rng, rho)),
        "sampling/importance_sampling_ratio/mean": 0.995 + 0.004 * noise(rng, rho),
        "step_time": 20 + 0.1 * length + 3 * noise(rng, rho),
    }
    table = limited(table)
    table["reward"] = table["rewards/accuracy/mean"] + 0.2 * table["rewards/format/mean"]
    return table


def slow_start(rng: Rng) -> Table:
    """The same as :func:`healthy` with a learning rate that warms up over 20 to 100 steps."""
    return healthy(rng, ramp=int(rng.integers(20, 100)))


def decaying(rng: Rng) -> Table:
    """The same as :func:`healthy` with a short warm-up and a learning rate that decays along a cosine."""
    return healthy(rng, ramp=15, decay=True)


def coarse(rng: Rng) -> Table:
    """The same as :func:`healthy`, one row every ten steps."""
    return {**healthy(rng), "step": 10.0 * np.arange(1, ROWS + 1)}


def cyclic(rng: Rng) -> Table:
    """Two data sources in turn, every 20 to 60 rows: reward, length, entropy and others differ between them."""
    table, period = stationary(0.3)(rng), int(rng.integers(20, 60))
    second = (np.arange(ROWS) // period) % 2
    for key in rng.choice(list(LEVELS), size=8, replace=False):
        table[key] = table[key] + rng.uniform(-2, 2) * LEVELS[key][1] * second
    return limited(table)


def restarted(rng: Rng) -> Table:
    """A run that goes on from 20 steps before it stopped, with every level moved by about its standard deviation."""
    table, stop = stationary(0.3)(rng), int(rng.integers(100, 250))
    after = np.arange(ROWS) >= stop
    table = limited({key: values + after * rng.normal() * LEVELS[key][1] for key, values in table.items()})
    return {**table, "step": np.arange(1.0, ROWS + 1) - 20 * after}


def asynchronous(rng: Rng) -> Table:
    """The mismatch of sampler and trainer doubles over the first two to ten steps, until the queue is full."""
    table, rise = stationary(0.3)(rng), 0.5 + 0.5 * np.minimum(np.arange(ROWS) / rng.integers(2, 10), 1)
    for key in ("mismatch_kl", "sampling/sampling_logp_difference/mean"):
        table[key] = table[key] * rise
    return table


def tuning(rng: Rng) -> Table:
    """Supervised fine-tuning: the loss falls, the gradient spikes now and then, an evaluation every 25 steps."""
    learned, rho = 1 - np.exp(-np.arange(ROWS) / rng.uniform(20, 120)), rng.uniform(0, 0.5)
    loss = rng.uniform(0.8, 2) * (1.8 - 0.8 * learned)
    spiky = np.where(rng.random(ROWS) < 0.01, rng.uniform(1.2, 1.8, ROWS), 1.0)
    table = {
        "learning_rate": 1e-5 * np.minimum(np.arange(1, ROWS + 1) / 10, 1) * np.linspace(1, 0.02, ROWS),
        "loss": loss * spiky + 0.06 * noise(rng, rho),
        "grad_norm": (0.5 + 0.3 * (1 - learned)) * np.exp(0.3 * noise(rng, rho)),
        "mean_token_accuracy": 0.5 + 0.15 * learned + 0.01 * noise(rng, rho),
        "entropy": loss * 0.9 + 0.05 * noise(rng, rho),
        "eval_loss": loss + 0.05 + 0.01 * noise(rng, 0.0),
    }
    table["eval_loss"][np.arange(ROWS) % 25 != 0] = np.nan
    return limited(table)


def preferring(rng: Rng) -> Table:
    """DPO that learns: margins grow, rejected answers become less likely, chosen ones hardly."""
    learned, rho = 1 - np.exp(-np.arange(ROWS) / rng.uniform(20, 100)), rng.uniform(0, 0.5)
    gap = rng.uniform(0.5, 2.0) * learned
    chosen = rng.uniform(-0.2, 0.5) * learned
    margin = gap + 0.1 * noise(rng, rho)
    table = {
        "learning_rate": 1e-6 * np.minimum(np.arange(1, ROWS + 1) / 20, 1),
        "loss": np.log1p(np.exp(-margin)) + 0.02 * noise(rng, rho),
        "rewards/chosen": chosen + 0.08 * noise(rng, rho),
        "rewards/rejected": chosen - gap + 0.08 * noise(rng, rho),
        "rewards/margins": margin,
        "rewards/accuracies": 0.5 + 0.35 * learned + 0.06 * noise(rng, rho),
        "logps/chosen": -180 + 10 * chosen + 10 * noise(rng, rho),
        "logps/rejected": -210 + 10 * (chosen - gap) + 10 * noise(rng, rho),
        "grad_norm": 0.8 * np.exp(0.3 * noise(rng, rho)),
        "eval_loss": np.log1p(np.exp(-gap * 0.9)) + 0.01 * noise(rng, 0.0),
    }
    table["eval_loss"][np.arange(ROWS) % 25 != 0] = np.nan
    return limited(table)


HEALTHY: dict[str, Callable[[Rng], Table]] = {
    "white noise": stationary(0.0),
    "white noise around 0": bare,
    "AR(1), ρ = 0.5": stationary(0.5),
    "AR(1), ρ = 0.9": stationary(0.9),
    "rough, one group a step": rough,
    "learning": healthy,
    "learning, slow start": slow_start,
    "learning, rate decays": decaying,
    "learning, logged every 10 steps": coarse,
    "cyclic data mix": cyclic,
    "restart with a jump of levels": restarted,
    "asynchronous start": asynchronous,
    "SFT, white noise": stationary(0.0, SFT_LEVELS),
    "SFT, AR(1), ρ = 0.9": stationary(0.9, SFT_LEVELS),
    "SFT, learning": tuning,
    "DPO, white noise": stationary(0.0, DPO_LEVELS),
    "DPO, AR(1), ρ = 0.9": stationary(0.9, DPO_LEVELS),
    "DPO, learning": preferring,
}


def growth(over: int = 120) -> Floats:
    """0 before the onset, 1 from ``over`` rows after it on."""
    return np.clip((np.arange(ROWS) - ONSET) / over, 0, 1)


def _zero_signal(table: Table) -> None:
    table["frac_reward_zero_std"] += (0.995 - table["frac_reward_zero_std"]) * growth(60)
    table["reward"] -= (table["reward"] - 0.05) * growth(60)


def _dead(table: Table) -> None:
    for key in ("reward", "reward_std", "grad_norm"):
        table[key][ONSET:] = 0.0


def _cap(table: Table) -> None:
    table["completions/clipped_ratio"] += (0.97 - table["completions/clipped_ratio"]) * growth()


def _kl(table: Table) -> None:
    table["kl"] *= np.exp(np.log(60.0) * growth())


def _entropy(table: Table) -> None:
    table["entropy"] *= 1 - 0.85 * growth()
    table["reward"] -= 0.3 * growth()


def _gradient(table: Table) -> None:
    table["grad_norm"] *= np.exp(np.log(12.0) * growth())


def _blocked(table: Table) -> None:
    table["grad_norm"][ONSET:] = 0.0


def _hacking(table: Table) -> None:
    table["reward"] += 0.4 * growth()
    table["rewards/format/mean"] += 0.4 * growth()


def _no_tools(table: Table) -> None:
    table["tools/call_frequency"] *= 1 - 0.97 * growth()


def _broken_tools(table: Table) -> None:
    table["tools/failure_frequency"][ONSET:] += 0.75


def _stale(table: Table) -> None:
    table["sampling/sampling_logp_difference/mean"][ONSET:] *= 12


def _drift(table: Table) -> None:
    table["mismatch_kl"] *= np.exp(np.log(6.0) * growth())


def _clip(table: Table) -> None:
    table["clip_ratio/region_mean"] += 0.25 * growth()


def _outage(table: Table) -> None:
    table["reward"] -= 0.42 * growth(4)


def _concentration(table: Table) -> None:
    table["reward_std"] *= 1 - 0.9 * growth()


def _alike(table: Table) -> None:
    for key in ("completions/min_length", "completions/max_length"):
        table[key] += (table["completions/mean_length"] - table[key]) * 0.9 * growth()
    table["entropy"] *= 1 - 0.6 * growth()


def _paid_by_length(table: Table) -> None:
    table["completions/mean_length"] *= 1 + 1.2 * growth()
    table["reward"] = 0.2 + table["completions/mean_length"] / 1000


def _slow(table: Table) -> None:
    table["step_time"][ONSET:] *= 4


def _void(table: Table) -> None:
    table["void_turns"] += 0.4 * growth()


def _diverges(table: Table) -> None:
    table["loss"] *= 1 + 0.6 * growth()


def _spike(table: Table) -> None:
    table["loss"][ONSET:] += 1.2


def _overfits(table: Table) -> None:
    table["loss"] *= 1 - 0.3 * growth()
    table["eval_loss"] = np.where(np.arange(ROWS) % 10 == 0, 1.5 - 0.1 * (1 - growth()) + 0.3 * growth(), np.nan)


def _chance(table: Table) -> None:
    table["rewards/margins"] -= 0.8
    table["rewards/accuracies"] -= 0.25
    table["loss"] += 0.193


def _margin(table: Table) -> None:
    table["rewards/margins"] *= 1 - 0.8 * growth()
    table["rewards/accuracies"] -= 0.2 * growth()


def _displaced(table: Table) -> None:
    table["logps/chosen"] -= 140 * growth()
    table["logps/rejected"] -= 180 * growth()


FAILING: dict[str, tuple[dict[str, tuple[float, float]], Callable[[Table], None], object]] = {
    "reward, its spread and the gradient become 0": (LEVELS, _dead, dead_run),
    "groups lose their spread, reward falls": (LEVELS, _zero_signal, zero_signal),
    "grad_norm becomes 0": (LEVELS, _blocked, update_blocked),
    "sampler gets stale weights, difference ×12": (LEVELS, _stale, mismatch),
    "engine drifts, mismatch KL ×6": (LEVELS, _drift, mismatch),
    "reward falls by 0.42 in four steps, policy stays": (LEVELS, _outage, environment_fault),
    "KL grows ×60": (LEVELS, _kl, kl_runaway),
    "grad_norm grows ×12": (LEVELS, _gradient, gradient_tail),
    "clip fraction grows from 3 to 28 %": (LEVELS, _clip, clip_fraction),
    "entropy falls to 15 %, reward falls": (LEVELS, _entropy, entropy_change),
    "completions become alike, entropy falls": (LEVELS, _alike, diversity),
    "reward_std falls to 10 %": (LEVELS, _concentration, reward_concentration),
    "completions run into the cap": (LEVELS, _cap, length_at_cap),
    "one reward rises, another does not": (LEVELS, _hacking, reward_hacking),
    "the reward is the length": (LEVELS, _paid_by_length, reward_length),
    "tool calls stop": (LEVELS, _no_tools, tool_use),
    "tools break": (LEVELS, _broken_tools, tool_failures),
    "void turns rise to 43 %": (LEVELS, _void, void_turns),
    "steps take ×4": (LEVELS, _slow, slow_steps),
    "SFT: the loss rises by 60 %": (SFT_LEVELS, _diverges, loss_rise),
    "SFT: the loss jumps by 80 %": (SFT_LEVELS, _spike, loss_rise),
    "SFT: evaluation turns, training loss falls": (SFT_LEVELS, _overfits, overfitting),
    "DPO: at chance from the start": (DPO_LEVELS, _chance, preference_chance),
    "DPO: margins fall to 20 %": (DPO_LEVELS, _margin, margin_collapse),
    "DPO: both answers become less likely": (DPO_LEVELS, _displaced, likelihood_displacement),
}
"""Name → levels before the onset, what goes wrong, the rule that should find it."""


def climbing(rng: Rng) -> Table:
    """A long run whose gradient norm and clip fraction double over its last two thirds."""
    table = stationary(0.5, LEVELS, LONG_ROWS)(rng)
    climb = 1 + np.clip((np.arange(LONG_ROWS) - LONG_ROWS / 3) / (LONG_ROWS * 2 / 3), 0, 1)
    for key in ("grad_norm", "clip_ratio/region_mean"):
        table[key] = table[key] * climb
    return table
