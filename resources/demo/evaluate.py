"""Measure a model folder on the held-out chats, as stock transformers computes it: nats per token.

python resources/demo/evaluate.py FOLDER [--every N] [--dtype float32]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path[:0] = [str(REPO), str(HERE)]


def main() -> None:
    """Print one JSON object: nats per token of whole chats (template and prompts too) and of their answers alone."""
    import torch
    from text import finished_flags, read_chats, tokenise
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--held-out", type=Path, default=REPO / "tests" / "data" / "held_out_chats.jsonl")
    parser.add_argument("--every", type=int, default=1, help="every Nth chat only")
    parser.add_argument("--dtype", default="float32", help="what to compute in")
    options = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=getattr(torch, options.dtype))
    chats = list(zip(read_chats(options.held_out), finished_flags(options.held_out), strict=True))
    whole, answers = [], []
    with torch.inference_mode():
        for chat, ended in chats[:: options.every]:
            ids, answer = tokenise(tokenizer, chat, ended)
            targets = torch.tensor(ids[1:])
            logits = model(torch.tensor([ids])).logits[0, :-1].float()
            loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
            whole.append(loss)
            answers.append(loss[torch.tensor(answer[1:])])
    figures = {"chats": len(whole), "nats": torch.cat(whole).mean(), "nats_answers": torch.cat(answers).mean()}
    print(json.dumps({name: round(float(value), 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
