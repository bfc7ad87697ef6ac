"""An adapter that PEFT saved from transformers' own class, as other programs do, and what this class makes of pages."""

from __future__ import annotations

from pathlib import Path

import peft
import torch
from torch.nn.functional import normalize
from transformers import Qwen2_5_VLForConditionalGeneration

from conceptformer.backbones.protocol import PageInput
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from tests.conceptformer.tiny_models import tiny_folder

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def write_release(folder: Path) -> peft.PeftModel:
    """Write an adapter with random matrices for ``tiny_folder()``; returns the model that it was saved from."""
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(tiny_folder(), dtype=torch.float32)
    settings = peft.LoraConfig(r=8, lora_alpha=64, lora_dropout=0.1, target_modules=MODULES)
    adapted = peft.get_peft_model(model, settings).eval()
    generator = torch.Generator().manual_seed(3)
    for name, parameter in adapted.named_parameters():
        if ".lora_B." in name:
            parameter.data.normal_(std=0.05, generator=generator)
    adapted.save_pretrained(folder)
    return adapted


@torch.no_grad()
def page_state(model: peft.PeftModel, backbone: Qwen2_5_VL, page: PageInput) -> torch.Tensor:
    """The normalised last state of one page by transformers' own forward, positions and image merging included."""
    ids = torch.tensor([[*backbone.inputs.prefix_ids(page.grid), *backbone.inputs.page_suffix_ids()]])
    output = model(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        pixel_values=page.pixels,
        image_grid_thw=torch.tensor([[1, 2 * page.grid.rows, 2 * page.grid.columns]]),
        mm_token_type_ids=(ids == backbone.inputs.image_token_id).int(),
        output_hidden_states=True,
    )
    return normalize(output.hidden_states[-1][0, -1], dim=0)


@torch.no_grad()
def query_state(model: peft.PeftModel, backbone: Qwen2_5_VL, query: str) -> torch.Tensor:
    """The same for a query."""
    ids = torch.tensor([backbone.inputs.query_ids(query)])
    output = model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    return normalize(output.hidden_states[-1][0, -1], dim=0)
