from foreshock.run.identity import environment_identity, git_state, without_secrets


def test_values_of_secret_options_are_not_recorded():
    command = ["train.py", "--hub_token", "hf_x", "--wandb-api-key=abc", "--lr", "1e-4", "--password", "--verbose"]
    assert without_secrets(command) == [
        "train.py", "--hub_token", "***", "--wandb-api-key=***", "--lr", "1e-4", "--password", "***",
    ]  # fmt: skip


def test_the_environment_names_versions_and_git(tmp_path):
    assert environment_identity()["packages"]["numpy"]
    assert git_state(tmp_path) is None
