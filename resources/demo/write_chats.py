"""Write more text to distil on: the dense model answers everyday prompts, one or two turns.

The demo learns to give the dense model's own distribution, so any text will do that looks like what people will ask.
Prompts are composed from the lists in prompts.json; answers are sampled (temperature 0.7, top-p 0.95, 180 tokens).
A prompt found in the held-out chats is left out. One JSON object a line: ``turns``, a list of prompts and answers in
turn, the last answer perhaps cut short.

    python resources/demo/write_chats.py --dense FOLDER --held-out tests/data/held_out_chats.jsonl --out more.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

PROMPTS = json.loads((Path(__file__).parent / "prompts.json").read_text(encoding="utf-8"))
MAX_NEW_TOKENS = 180


def compose_prompts(held_out: set[str], seed: int) -> list[str]:
    """Every form with every word once, shuffled; everyday prompts three times (their answers are sampled anew)."""
    prompts = [form.format(t=thing) for form in PROMPTS["about_things"] for thing in PROMPTS["things"]]
    prompts += [form.format(t=country) for form in PROMPTS["about_countries"] for country in PROMPTS["countries"]]
    random.Random(seed).shuffle(prompts)
    everyday = PROMPTS["everyday"] * 3
    random.Random(seed + 1).shuffle(everyday)
    # everyday prompts spread through the front, so that stopping early keeps the mixture
    mixed: list[str] = []
    while prompts:
        mixed += everyday[:1] + prompts[:2]
        everyday, prompts = everyday[1:], prompts[2:]
    return [prompt for prompt in mixed if prompt not in held_out]


def main() -> None:
    """Sample answers batch by batch, appending to ``--out``; every second batch gets a second turn."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dense", type=Path, required=True, help="the dense model as a transformers folder")
    parser.add_argument("--held-out", type=Path, required=True, help="chats whose prompts must not be used")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--chats", type=int, default=128, help="stop after so many")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    choose = random.Random(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(options.dense, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(options.dense, dtype=torch.bfloat16)

    def answer(chats: list[list[str]]) -> None:
        """Append the model's answer to each chat, in place."""
        roles = ("user", "assistant")
        messages = [[{"role": roles[i % 2], "content": t} for i, t in enumerate(chat)] for chat in chats]
        batch = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        with torch.inference_mode():
            out = model.generate(
                **batch, do_sample=True, temperature=0.7, top_p=0.95, top_k=0, max_new_tokens=MAX_NEW_TOKENS
            )
        for chat, row in zip(chats, out[:, batch["input_ids"].shape[1] :], strict=True):
            chat.append(tokenizer.decode(row, skip_special_tokens=True).strip())

    held_out = {json.loads(line)["prompt"] for line in options.held_out.read_text("utf-8").splitlines()}
    prompts = compose_prompts(held_out, options.seed)[: options.chats]
    with options.out.open("a", encoding="utf-8") as out:
        for number, start in enumerate(range(0, len(prompts), options.batch)):
            chats = [[prompt] for prompt in prompts[start : start + options.batch]]
            answer(chats)
            if number % 2:
                for chat in chats:
                    chat.append(choose.choice(PROMPTS["follow_ups"]))
                answer(chats)
            for chat in chats:
                out.write(json.dumps({"turns": chat}, ensure_ascii=False) + "\n")
            out.flush()
            print(f"{start + len(chats)} of {len(prompts)} chats", flush=True)


if __name__ == "__main__":
    main()
