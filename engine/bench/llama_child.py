"""The process that runs llama.cpp for the benchmark: a JSON object per line in, one out; ends when its input does.

First ``{"model", "context", "threads", "limit"}`` (limit: bytes of own allocations, 0: none), then any number of
``{"prompt", "steps"}``. What goes wrong is answered with ``{"error"}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, TextIO


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the library prints must not be taken for an answer
    model: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if model is None:
                limited = _limit(request["limit"])
                model = _load(request)
                _say(answers, {"limited": limited})
            else:
                _say(answers, answer(model, request["prompt"], request["steps"]))
        except Exception as error:  # of the library, of any kind: the other side words it
            _say(answers, {"error": f"{error} ({type(error).__name__})"})


def _limit(nbytes: int) -> bool:
    """Cap this process's own allocations; False where nothing was capped."""
    if not nbytes:
        return False
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (nbytes, nbytes))
    except (ImportError, AttributeError, ValueError, OSError):
        return False
    return True


def _load(request: dict[str, Any]) -> Any:
    import llama_cpp

    return llama_cpp.Llama(
        model_path=request["model"],
        n_ctx=request["context"],
        n_threads=request["threads"],
        n_threads_batch=request["threads"],
        n_gpu_layers=0,
        use_mmap=True,
        use_mlock=False,
        verbose=False,
    )


def answer(model: Any, prompt: list[int], steps: int) -> dict[str, Any]:
    """Greedy, past any end token, timed as the other contenders are. model: a ``llama_cpp.Llama``, or its like."""
    model.reset()
    began = time.perf_counter()
    model.eval(prompt)
    token = int(model.sample(temp=0.0))
    prefill = time.perf_counter() - began
    tokens = []
    began = time.perf_counter()
    for _ in range(steps):
        tokens.append(token)
        model.eval([token])
        token = int(model.sample(temp=0.0))
    return {"prefill_seconds": prefill, "tokens": tokens, "seconds": time.perf_counter() - began}


def _say(answers: TextIO, value: dict[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
