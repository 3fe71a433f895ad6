"""How RWKV models of the World family read and write: tokenizer, chat format, tools, thinking.

vLLM finds these by names that the plugin registers, and only for models that bring no tokenizer of
their own. What a model's weights are is `rwkv_server.model`'s business.
"""
