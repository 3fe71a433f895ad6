"""How a token is chosen: penalties and the draw, and the thin parts that hang them into vLLM.

`choice`, `seen_tokens`, `draw`, `random_bits` and `decay` know nothing of vLLM. `whole` chooses
tokens on the CPU; `decay_v1` and `decay_v2` only let penalties decay on accelerators, for vLLM's
two model runners. The server passes one of the three by `--logits-processors`; none is an entry
point, because a model runner refuses the other's classes.
"""
