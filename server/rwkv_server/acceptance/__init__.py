"""Gate 4: does a real engine on the hardware at hand keep its requests' states apart.

`scenario` says what is asked of it, `engine` runs that once in a process of its own, `trace` and
`verify` judge what came out and are pure, `evidence` writes and reads the result. Only `engine`
may import vLLM or torch.
"""
