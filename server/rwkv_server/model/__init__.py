"""RWKV-7 itself: its configuration, tensors, state layout, a reference, and vLLM's model of it.

`config`, `state_layout` and `weights` are pure, import neither torch nor vLLM, and let the parent
process check a model's files. `reference` needs torch alone. Only `backend`, `hf_config`,
`layers` and `rwkv7` run inside vLLM.
"""
