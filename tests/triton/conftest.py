"""Triton's kernels on machines without a GPU: values in its interpreter, compiled for real chips.

Run by the engine environment's Python with Triton's folder on PYTHONPATH, see `make test-engine`.
The interpreter is chosen when kernels are defined, so these tests are a process of their own.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
