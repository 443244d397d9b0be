import subprocess
import sys

import pytest

HEAVY = ("torch", "trl", "transformers", "accelerate", "datasets", "peft", "numba")


def loaded_after(statement):
    code = f"import sys; {statement}; print(*sorted(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import foreshock",
        "import foreshock.sketch, foreshock.run, foreshock.detect, foreshock.diagnosis",
        "import foreshock.views.report, foreshock.views.terminal",
    ],
)
def test_the_core_loads_no_framework(statement):
    assert not loaded_after(statement) & set(HEAVY)


def test_the_help_of_the_command_line_loads_no_numpy():
    help_shown = "with contextlib.redirect_stdout(io.StringIO()): cli.main(['--help'], standalone_mode=False)"
    code = f"import contextlib, io, sys\nimport foreshock.cli as cli\n{help_shown}\nprint(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "foreshock.cli" in modules
    assert not set(modules) & {*HEAVY, "numpy", "plotly", "rich", "jinja2"}


def test_public_names_stay_what_they_are_whatever_was_imported_before(tmp_path):
    code = (
        "import foreshock, foreshock.diagnosis, foreshock.views.report\n"
        "for _ in range(2):\n"
        "    try: foreshock.diagnose(__import__('sys').argv[1])\n"
        "    except foreshock.errors.ReadError: print('called')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.split() == ["called", "called"], done.stderr


def test_every_public_name_can_be_imported():
    import foreshock

    for name in foreshock.__all__:
        assert getattr(foreshock, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        foreshock.nothing  # noqa: B018
