"""The network of NV-Embed-v2, built from native parts: its checkpoint's own code is never run.

NV-Embed (arXiv:2405.17428, section 3.1): a Mistral model whose attention sees the whole text, and a latent attention
layer: each state attends to 512 learned vectors, passes a gated feed-forward layer, each with a residual, and the mean
over the text's states, those of the instruction left aside, is the embedding. Names are those of the checkpoint.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import MistralConfig, MistralModel, PreTrainedConfig, PreTrainedModel

_FEED_FORWARD_FACTOR = 4


class NvEmbedConfig(PreTrainedConfig):
    """``config.json`` of the checkpoint, as far as the network depends on it.

    Attributes:
        text_config: Of the Mistral model.
        latent_attention_config: Sizes of the latent attention, those of NV-Embed-v2 where it does not say them.
    """

    model_type = "nvembed"

    def __init__(
        self,
        text_config: dict[str, Any] | None = None,
        latent_attention_config: dict[str, Any] | None = None,
        **others: Any,
    ) -> None:
        self.text_config = dict(text_config or {})
        sizes = latent_attention_config or {}
        self.latents = int(sizes.get("num_latents_value", 512))
        self.heads = int(sizes.get("num_cross_heads", 8))
        self.head_size = int(sizes.get("cross_dim_head", 4096))
        super().__init__(**others)


class NvEmbedModel(PreTrainedModel):
    """Texts to embeddings [B, D], not normalised."""

    config_class = NvEmbedConfig
    base_model_prefix = ""
    _supports_sdpa = True

    def __init__(self, config: NvEmbedConfig) -> None:
        super().__init__(config)
        ignored = ("model_type", "architectures", "_name_or_path", "torch_dtype", "dtype", "transformers_version")
        text = MistralConfig(**{name: value for name, value in config.text_config.items() if name not in ignored})
        text._attn_implementation = config._attn_implementation
        self.embedding_model = MistralModel(text)
        self.latent_attention_model = _LatentAttention(config, text.hidden_size)
        self.post_init()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Embeddings [B, D] float32.

        Args:
            input_ids: [B, L].
            attention_mask: [B, L] bool, true where there is a token.
            pooled: [B, L] bool, true where a token's state takes part in the mean; at least one in each row.
        """
        length = input_ids.shape[1]
        # With a mask of four dimensions transformers puts no causal mask of its own, nor a sliding window.
        sees_all = attention_mask[:, None, None, :].expand(-1, 1, length, length)
        output = self.embedding_model(input_ids=input_ids, attention_mask=sees_all, use_cache=False)
        states = self.latent_attention_model(output.last_hidden_state).float()
        weights = pooled.unsqueeze(-1).float()
        return (states * weights).sum(dim=1) / weights.sum(dim=1)

    def _init_weights(self, module: nn.Module) -> None:
        """Only tests make networks without a checkpoint."""
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.1)
        if isinstance(module, _LatentAttention):
            nn.init.normal_(module.latents)


class _LatentAttention(nn.Module):
    """States [B, L, D] to states [B, L, D]."""

    def __init__(self, config: NvEmbedConfig, size: int) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.empty(config.latents, size))
        attention = _BehindNorm(_Attention(size, config.heads, config.head_size), size, of_latents=True)
        self.cross_attend_blocks = nn.ModuleList([attention, _BehindNorm(_FeedForward(size), size, of_latents=False)])

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        attention, feed_forward = self.cross_attend_blocks
        states = states + attention.fn(attention.norm(states), attention.norm_context(self.latents))
        return states + feed_forward.fn(feed_forward.norm(states))


class _BehindNorm(nn.Module):
    """A layer and the norms of what goes into it."""

    def __init__(self, layer: nn.Module, size: int, *, of_latents: bool) -> None:
        super().__init__()
        self.fn = layer
        self.norm = nn.LayerNorm(size)
        self.norm_context = nn.LayerNorm(size) if of_latents else None


class _Attention(nn.Module):
    def __init__(self, size: int, heads: int, head_size: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(size, heads * head_size, bias=False)
        self.to_kv = nn.Linear(size, 2 * heads * head_size, bias=False)
        self.to_out = nn.Linear(heads * head_size, size, bias=False)

    def forward(self, states: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
        """[B, L, D] from states [B, L, D] and latents [N, D]."""
        batch, length, _ = states.shape
        queries = self.to_q(states).view(batch, length, self.heads, -1).transpose(1, 2)
        # Keys and values are the same for all texts: made once, seen by each.
        keys, values = (
            half.view(1, len(latents), self.heads, -1).transpose(1, 2).expand(batch, -1, -1, -1)
            for half in self.to_kv(latents).chunk(2, dim=-1)
        )
        seen = nn.functional.scaled_dot_product_attention(queries, keys, values)
        return self.to_out(seen.transpose(1, 2).reshape(batch, length, -1))


class _FeedForward(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        # The checkpoint counts the gate between the two, which has no weights.
        self.net = nn.ModuleDict(
            {"0": nn.Linear(size, 2 * _FEED_FORWARD_FACTOR * size), "2": nn.Linear(_FEED_FORWARD_FACTOR * size, size)}
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        values, gates = self.net["0"](states).chunk(2, dim=-1)
        return self.net["2"](values * nn.functional.gelu(gates))
