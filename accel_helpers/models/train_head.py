"""Train the sentiment head of the text encoder again: ``python -m accel_helpers.models.train_head`` (needs the dev extra).

A logistic regression on the sentence embeddings of three quarters of the tweets, folded into two logits whose softmax is its
probability: the same bits every time on one machine.
"""

from __future__ import annotations

import sys

import numpy as np

from accel_helpers.models.model import Array
from accel_helpers.models.text_encoder import HEAD, encoder, tweets


def embeddings(ids: Array) -> Array:
    """Sentence embeddings (texts, 384) float32 of padded token numbers (texts, tokens)."""
    import torch

    from accel_helpers.models.networks import SentimentEncoder

    network = SentimentEncoder(encoder(), torch.nn.Linear(384, 2)).eval()
    order = np.argsort((ids != 0).sum(axis=1), kind="stable")
    found = np.empty((len(ids), 384), np.float32)
    with torch.inference_mode():
        for start in range(0, len(ids), 64):
            rows = order[start : start + 64]
            longest = int((ids[rows] != 0).sum(axis=1).max())
            batch = torch.from_numpy(ids[rows, :longest].astype(np.int64))
            found[rows] = network(batch, (batch != 0).long())[1].numpy()
    return found


def main() -> int:
    """Write ``data/sentiment_head.safetensors``: weight (2, 384), bias (2,), validation (tweets held out,) int32."""
    from safetensors.numpy import save
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split

    labels = tweets()["labels"]
    vectors = embeddings(tweets()["ids"])
    training, validation = train_test_split(np.arange(len(labels)), test_size=0.25, random_state=0, stratify=labels)
    regression = LogisticRegression(C=10, max_iter=2000).fit(vectors[training], labels[training])
    half_weight, half_bias = regression.coef_[0] / 2, regression.intercept_[0] / 2
    head = {
        "weight": np.stack([-half_weight, half_weight]).astype(np.float32),
        "bias": np.array([-half_bias, half_bias], np.float32),
        "validation": np.sort(validation).astype(np.int32),
    }
    HEAD.write_bytes(save(head))
    score = regression.score(vectors[validation], labels[validation])
    print(f"{HEAD.name}: accuracy {score:.4f} on {len(validation)} tweets held out of {len(labels)}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
