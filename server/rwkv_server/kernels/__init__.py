"""The WKV-7 recurrence and what lies around it: a readable reference, fast forms, and the choice.

Kernels take tensors and a plan; they know nothing of vLLM, modules or files. `cpp/` holds whole
layers for CPUs, which know a model as a table of pointers (`cpu_tables`).
"""
