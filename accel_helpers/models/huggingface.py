"""A model of the reader's own in a Hugging Face folder, or on the Hub by its id: safetensors weights, no code of theirs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.errors import ModelError
from accel_helpers.models.model import Array, Model

_HEADS = ("ForSequenceClassification", "ForImageClassification", "ForTokenClassification", "ForMaskedLM", "ForCausalLM")
"""Architectures that run as they are and answer logits; of every other one the body runs and answers its last hidden state."""
_PER_TOKEN = _HEADS[2:]


def from_huggingface(name: str) -> Model:
    """The model in the folder ``name``, or of the Hub's id ``owner/name``, downloaded once into the Hub's own cache.

    Inputs are random tokens or random pixels, as the configuration says.

    Raises:
        ModelError: no such model, no network, no safetensors, weights that do not fit, or inputs that the
            configuration does not tell.
    """
    folder = Path(name) if Path(name).is_dir() else _download(name)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise ModelError(
            f"{name} holds no *.safetensors.", "Save it with save_pretrained; pickled weights are not loaded, for they can run code."
        )
    config = _config(name, folder)
    head = next((one for one in getattr(config, "architectures", None) or () if one.endswith(_HEADS)), "")
    text = _reads_text(name, config)
    output = "logits" if head else "last_hidden_state"
    open_axes = {0: "batch", 1: "sequence"} if text else {0: "batch"}
    keeps_tokens = text and (not head or head.endswith(_PER_TOKEN))
    digest = hashlib.sha256(f"huggingface 1 {head}".encode())
    for file in (folder / "config.json", *weights):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return Model(
        name=name,
        example=lambda batch, sequence, seed: _example(name, config, text, batch, sequence, seed),
        axes={
            **dict.fromkeys(("input_ids", "attention_mask") if text else ("pixel_values",), open_axes),
            output: open_axes if keeps_tokens else {0: "batch"},
        },
        outputs=(output,),
        fingerprint=digest.hexdigest(),
        build=lambda: _build(name, folder, head, text),
        has_sequence=text,
        notes={"source": f"the reader's {name}, {head or 'body'}"},
    )


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ModelError(
            f"There is no folder {name}, and the Hub's model {name} could not be downloaded: {reason}.",
            "Check the name and the network, or give the path of a folder that save_pretrained wrote.",
        ) from None


def _config(name: str, folder: Path) -> Any:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ModelError(
            f"The configuration of {name} cannot be used: {reason}.", "Only architectures that transformers itself has are loaded."
        ) from None
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"{name} is an encoder-decoder, which is no single call.", "Wrap the part to measure in a function and name it module:function."
        )
    return config


def _reads_text(name: str, config: Any) -> bool:
    """Whether the model reads tokens; False where it reads pictures."""
    if isinstance(getattr(config, "image_size", None), int):
        return False
    if isinstance(getattr(config, "vocab_size", None), int):
        return True
    raise ModelError(
        f"The configuration of {name} names neither vocab_size nor image_size, so its inputs cannot be made.",
        "Write a function that returns the network, give it an attribute `example`, and name it module:function.",
    )


def _example(name: str, config: Any, text: bool, batch: int, sequence: int, seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    if not text:
        shape = (batch, getattr(config, "num_channels", 3), config.image_size, config.image_size)
        return {"pixel_values": generator.normal(size=shape).astype(np.float32)}
    longest = getattr(config, "max_position_embeddings", None) or sequence
    if sequence > longest:
        raise ModelError(f"{name} reads at most {longest} tokens; {sequence} were asked for.", "Choose a shorter sequence.")
    special = {getattr(config, f"{kind}_token_id", None) for kind in ("pad", "bos", "eos", "sep", "cls")}
    ordinary = np.setdiff1d(np.arange(config.vocab_size), [token for token in special if isinstance(token, int)])
    ids = generator.choice(ordinary, (batch, sequence))
    return {"input_ids": ids.astype(np.int64), "attention_mask": np.ones((batch, sequence), np.int64)}


def _build(name: str, folder: Path, head: str, text: bool) -> Any:
    import torch
    import transformers

    from accel_helpers.models.networks import FirstOfPictures, FirstOfText

    kind = getattr(transformers, head) if head else transformers.AutoModel
    try:
        network, loaded = kind.from_pretrained(
            folder, use_safetensors=True, trust_remote_code=False, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:  # safetensors, torch and transformers each have their own
        reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
        raise ModelError(f"The weights of {name} cannot be loaded: {reason}.", "Save them again, or download the folder again.") from error
    absent = [key for key in loaded["missing_keys"] if not key.startswith("pooler.")]  # the pooler's answer is not used
    if absent:
        raise ModelError(
            f"The weights of {name} lack {absent[0]}; it would run on random ones.", "Save the whole model with save_pretrained."
        )
    network.config.use_cache = False
    return (FirstOfText if text else FirstOfPictures)(network).eval()
