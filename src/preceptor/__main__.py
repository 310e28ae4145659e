"""``python -m preceptor``, which is also what ``torchrun -m preceptor`` starts."""

from preceptor.cli import main

main()
