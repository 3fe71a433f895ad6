"""The config class that transformers, and through it vLLM, builds from config.json.

It only carries the file's fields to `config.parse_config`; nothing is decided here.
"""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig

from rwkv_server.model import config


class RWKV7HFConfig(PretrainedConfig):
    """config.json of an RWKV-7 in the fla format."""

    model_type = config.MODEL_TYPE

    def __init__(self, **fields: Any) -> None:
        """Keep every field but two.

        The format's max_position_embeddings is no limit of the architecture, and vLLM would take it
        for one. The format's default end is not a World model's.
        """
        if config.has_wrong_end(fields):
            fields["eos_token_id"] = 0
        fields.pop("max_position_embeddings", None)
        super().__init__(**fields)

    def parse(self) -> config.RWKV7Config:
        """The numbers that the model is built from."""
        return config.parse_config(self.to_dict() | {"model_type": self.model_type})
