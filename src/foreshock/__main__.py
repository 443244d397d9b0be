"""``python -m foreshock``, which launchers such as ``accelerate launch -m foreshock demo`` need."""

from foreshock.cli import main

main()
