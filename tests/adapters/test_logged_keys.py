"""The keys that the rules read are the keys that real trainers log: each is trained for two steps on a tiny policy."""

import importlib
import math
import warnings

import pytest
from datasets import Dataset
from transformers import AutoModelForCausalLM, PrinterCallback

from foreshock.lab.environment import questions
from foreshock.lab.vocabulary import build_tokenizer
from foreshock.run import Run

PREFERENCE = ("loss", "grad_norm", "learning_rate", "rewards/chosen", "rewards/rejected", "rewards/margins")
SAMPLED = (
    "reward", "reward_std", "frac_reward_zero_std", "entropy", "kl", "grad_norm", "step_time", "clip_ratio/region_mean",
    "completions/mean_length", "completions/min_length", "completions/max_length", "completions/clipped_ratio",
)  # fmt: skip


def answered(word):
    return [{"role": "assistant", "content": f"answer {word}"}]


def paired():
    return [
        {"prompt": row["prompt"], "chosen": answered("v1"), "rejected": answered("none")}
        for row in questions(2, 3, 1, seed=0)
    ]


def labelled():
    return [
        {"prompt": row["prompt"], "completion": answered("v1" if number % 2 else "none"), "label": bool(number % 2)}
        for number, row in enumerate(questions(2, 3, 1, seed=0))
    ]


def demonstrated():
    return [{"messages": [*row["prompt"], *answered("v1")]} for row in questions(2, 3, 1, seed=0)]


def asked():
    return questions(2, 3, 1, seed=0)


def length_reward(completions, **_):
    return [float(len(completion[-1]["content"])) for completion in completions]


SAMPLING = {"num_generations": 4, "max_completion_length": 8, "beta": 0.1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "rows", "options", "keys"),
    [
        ("trl", "SFT", demonstrated, {}, ("loss", "grad_norm", "mean_token_accuracy", "entropy", "eval_loss")),
        (
            "trl", "DPO", paired, {},
            (*PREFERENCE, "rewards/accuracies", "logps/chosen", "logps/rejected", "entropy", "eval_loss",
             "eval_rewards/accuracies"),
        ),
        ("trl", "KTO", labelled, {}, (*PREFERENCE, "logps/chosen", "logps/rejected", "kl", "eval_loss")),
        ("trl", "RLOO", asked, SAMPLING, SAMPLED),
        ("trl", "GRPO", asked, SAMPLING, SAMPLED),
        (
            "trl.experimental.orpo", "ORPO", paired, {},
            (*PREFERENCE, "rewards/accuracies", "logps/chosen", "logps/rejected", "nll_loss"),
        ),
        (
            "trl.experimental.cpo", "CPO", paired, {},
            (*PREFERENCE, "rewards/accuracies", "logps/chosen", "logps/rejected", "nll_loss"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isupper() else "",
)  # fmt: skip
def test_a_real_trainer_logs_the_keys_that_the_rules_read(reference, tmp_path, module, name, rows, options, keys):
    run = trained(reference, tmp_path, module, name, Dataset.from_list(rows()), options)
    assert [key for key in keys if key not in run.series] == []
    assert all(math.isfinite(run.series[key].values[-1]) for key in keys)
    if name == "KTO":
        assert "rewards/accuracies" not in run.series  # how the rule on the balance of KTO's classes knows it


def trained(reference, folder, module, name, data, options):
    """Train two steps, evaluate, and return the run that the trainer's own log history holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # trl.experimental says that it is experimental
        trl = importlib.import_module(module)
    config = getattr(trl, f"{name}Config")(
        output_dir=str(folder),
        max_steps=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        learning_rate=1e-3,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        eval_strategy="no" if options else "steps",
        eval_steps=2,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        gradient_checkpointing=False,
        **options,
    )
    rewards = {"reward_funcs": [length_reward]} if options else {}
    trainer = getattr(trl, f"{name}Trainer")(
        model=AutoModelForCausalLM.from_pretrained(reference),
        args=config,
        processing_class=build_tokenizer(),
        train_dataset=data,
        eval_dataset=None if options else data,
        **rewards,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    run = Run()
    for row in trainer.state.log_history:
        run.append_scalars(row["step"], {key: value for key, value in row.items() if key != "step"})
    return run
