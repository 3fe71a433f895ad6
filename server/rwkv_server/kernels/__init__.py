"""The WKV-7 recurrence: a readable reference, fast forms of it, and the one place that chooses.

Kernels take tensors and a `plan.Plan`; they know nothing of vLLM, models or weights.
"""
