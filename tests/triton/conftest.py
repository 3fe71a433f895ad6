"""Triton's kernels on machines without a GPU: values in its interpreter, compiled for real chips.

Run by the engine environment's Python with Triton's folder on PYTHONPATH, see `make test-engine`.
The interpreter is chosen when kernels are defined, so these tests are a process of their own.
"""

import os

# Read by Triton, torch, vLLM and the official implementation when they are imported.
os.environ |= {
    "TRITON_INTERPRET": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "RWKV_V7_ON": "1",
    "RWKV_JIT_ON": "0",
}
