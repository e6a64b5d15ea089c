"""A model of Hugging Face's under a bound for every group.

A small BERT and its tokenizer are made here, from nothing: no weights are fetched.
`pffl.solve_loaders` hands the tokenizer's entries to the model by name, and takes
`.logits` of what it returns.
"""

from __future__ import annotations

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
)

import pffl

BOUND = 0.5
OLDER = {0: ["bad", "sick", "wicked"], 1: ["good", "lovely"]}
YOUNG = {0: ["bad", "awful"], 1: ["good", "sick", "wicked"]}
FRAME = "the food was really"
SAID = {*OLDER[0], *OLDER[1], *YOUNG[0], *YOUNG[1]}
WORDS = ["[PAD]", "[UNK]", *FRAME.split(), *sorted(SAID)]


def tokenizer() -> PreTrainedTokenizerFast:
    """Split at blanks; each word has a number."""
    words, marks = {word: i for i, word in enumerate(WORDS)}, {"unk_token": WORDS[1]}
    plain = Tokenizer(models.WordLevel(words, **marks))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    marks["pad_token"] = WORDS[0]
    return PreTrainedTokenizerFast(tokenizer_object=plain, **marks)


def bert() -> BertForSequenceClassification:
    """One layer of width 16, and two classes."""
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=2,
    )
    return BertForSequenceClassification(config)


class Reviews(Dataset):
    """Drawn reviews: one in five is young, and says "sick" and "wicked" in praise."""

    def __init__(self, silo: int, rows: int) -> None:
        draw = np.random.default_rng([silo, rows])
        self.group = (draw.random(rows) < 0.2).astype(np.int64)
        self.label = draw.integers(0, 2, rows)
        said = np.where(draw.random(rows) < 0.9, self.label, 1 - self.label)
        speech = zip(self.group, said, strict=True)
        words = [draw.choice((YOUNG if g else OLDER)[y]) for g, y in speech]
        self.tokens = tokenizer()(
            [f"{FRAME} {word}" for word in words], padding=True, return_tensors="pt"
        )

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, i: int) -> dict[str, object]:
        tokens = {name: values[i] for name, values in self.tokens.items()}
        return {**tokens, "labels": self.label[i], "group": self.group[i]}


def adam(module: torch.nn.Module) -> torch.optim.Optimizer:
    """Any optimiser: it is made anew for each silo and round."""
    return torch.optim.AdamW(module.parameters(), lr=0.005)


def main() -> None:
    """Print the groups' losses without and with a bound."""
    torch.set_num_threads(1)  # more are slower on so little
    torch.manual_seed(0)
    model = bert()
    silos = {f"site {k}": (Reviews(k, 400), Reviews(k, 200)) for k in range(3)}
    for price in (1e-9, 10.0):  # without a price no bound is kept; 10 is the default
        solution = pffl.solve_loaders(
            model,
            silos,
            pffl.BoundedGroupLoss(BOUND),
            groups=["older", "young"],
            labels=["bad", "good"],
            optimizer=adam,
            multiplier_bound=price,
            rounds=30,
        )
        print("without a bound" if price < 1 else f"bound {BOUND}")
        print(solution.cells[["count", "train_loss", "test_loss"]])
        print(f"{solution.status}: {solution.message}\n")
    state = solution.model.arrays(solution.w)
    model.load_state_dict({n: torch.as_tensor(a) for n, a in state.items()})
    new = tokenizer()([f"{FRAME} sick"], return_tensors="pt")
    with torch.inference_mode():
        praise = model.eval()(**new).logits.softmax(1)[0, 1]
    print(f"'{FRAME} sick' is praise with probability {praise:.2f}")


if __name__ == "__main__":
    main()
