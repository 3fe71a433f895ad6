"""The engine side: RWKV-7 for vLLM, and the parent process that runs it in a pod."""
